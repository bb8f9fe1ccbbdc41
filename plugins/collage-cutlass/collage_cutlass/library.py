"""A thin layer over a compiled kernel's C functions; all code above it runs with a library or an emulation."""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np

from collage_cuda import Contexts, PrimaryContexts, cuda_error
from collage_cutlass.problem import Chain, Conv, Gemm, Move

Call: TypeAlias = Callable[[], None]


class CutlassError(Exception):
    """A call failed; the message names the function and CUTLASS's status."""


class Placed(Protocol):
    """Device memory that is freed when this object is collected."""

    @property
    def pointer(self) -> int:
        """Address of the memory."""


class Library(Protocol):
    """The functions of one kernel.

    The calls they return enqueue and do not wait. Those raise `CutlassError`, or `DeviceError` where CUDA reports
    that the device is the reason.
    """

    def gemm(self, problem: Gemm, chain: Chain, places: Mapping[str, int], device: int, stream: int) -> Call:
        """Return a call that enqueues a batch of products.

        Args:
            problem: Extents of the products.
            chain: Epilogue, with the activation's parameters.
            places: Addresses of `a`, `b`, `result`, and of `bias` and `source` where they exist.
            device: Number of the device.
            stream: Stream on which to enqueue.
        """

    def conv(self, problem: Conv, chain: Chain, places: Mapping[str, int], device: int, stream: int) -> Call:
        """Return a call that enqueues a convolution; otherwise like `gemm`, with `x` and `filter` for `a` and `b`."""

    def move(self, move: Move, given: int, result: int, device: int, stream: int) -> Call:
        """Return a call that enqueues a copy."""

    def place(self, array: np.ndarray[Any, Any], device: int, stream: int) -> Placed:
        """Copy an array to new memory of a device, visible to kernels on a stream.

        Raises:
            DeviceError: If there is too little memory, or the device is lost.
            OSError: If the driver refuses.
        """


class GemmArguments(ctypes.Structure):
    """`CollageGemm` in `gemm_sm80.cu` and `gemm_sm90.cu`."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("m", "n", "k", "batch", "device")),
        *((name, ctypes.c_float) for name in ("first", "second")),
        *((name, ctypes.c_void_p) for name in ("a", "b", "bias", "source", "result")),
        *((name, ctypes.c_int64) for name in ("a_ld", "b_ld", "source_ld", "result_ld")),
        *((name, ctypes.c_int64) for name in ("a_stride", "b_stride", "source_stride", "result_stride")),
    )


class ConvArguments(ctypes.Structure):
    """`CollageConv` in `conv_sm80.cu`."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("n", "h", "w", "c", "k", "r", "s", "p", "q")),
        *((name, ctypes.c_int32) for name in ("pad_h", "pad_w", "stride_h", "stride_w", "dilation_h", "dilation_w")),
        ("device", ctypes.c_int32),
        *((name, ctypes.c_float) for name in ("first", "second")),
        ("source_is_vector", ctypes.c_int32),
        *((name, ctypes.c_void_p) for name in ("x", "filter", "bias", "source", "result")),
    )


class MoveArguments(ctypes.Structure):
    """`CollageMove` in `calls.cuh`."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("batch", "rows", "columns", "device", "turned", "narrowed")),
        *((name, ctypes.c_void_p) for name in ("given", "result")),
    )


class Compiled:
    """A library compiled by nvcc.

    It contains the CUDA runtime, so it needs only the driver, and that not before its first call.

    Args:
        data: The shared library.
        folder: Folder for the file while it is loaded; the file is removed afterwards.
        contexts: Devices, for the memory of weights.

    Raises:
        OSError: If it cannot be loaded, or was made by another version of this plugin.
    """

    def __init__(self, data: bytes, folder: Path | None = None, contexts: Contexts | None = None) -> None:
        number, path = tempfile.mkstemp(prefix="collage-cutlass-", suffix=".so", dir=folder)
        try:
            with os.fdopen(number, "wb") as file:
                file.write(data)
            self._library: Any = ctypes.CDLL(path)
        finally:
            Path(path).unlink()
        try:
            self._library.collage_status.restype = ctypes.c_char_p
            self._library.collage_chain.restype = ctypes.c_float
            self._library.collage_error.restype = ctypes.c_char_p
        except AttributeError as error:
            raise OSError(f"it is none that this version of the plugin compiles: {error}") from error
        self._contexts = contexts or PrimaryContexts()

    def gemm(self, problem: Gemm, chain: Chain, places: Mapping[str, int], device: int, stream: int) -> Call:
        """See `Library.gemm`. Arguments are made once; a call is one call into the library."""
        numbers = {name: getattr(problem, name) for name in ("m", "n", "k", "batch")}
        lies = {name: getattr(problem, name) for name in ("a", "b", "source", "result")}
        arguments = GemmArguments(
            **numbers,
            **places,
            **{f"{name}_ld": each.ld for name, each in lies.items()},
            **{f"{name}_stride": each.stride for name, each in lies.items()},
            first=chain.first,
            second=chain.second,
            device=device,
        )
        return self._call("collage_gemm", arguments, stream)

    def conv(self, problem: Conv, chain: Chain, places: Mapping[str, int], device: int, stream: int) -> Call:
        """See `Library.conv`."""
        numbers = {name: getattr(problem, name) for name in ("n", "h", "w", "c", "k", "r", "s", "p", "q")}
        pairs = {"pad": problem.pads, "stride": problem.strides, "dilation": problem.dilations}
        arguments = ConvArguments(
            **numbers,
            **places,
            **{f"{name}_{axis}": pair[place] for name, pair in pairs.items() for place, axis in enumerate("hw")},
            first=chain.first,
            second=chain.second,
            source_is_vector=problem.source_is_vector,
            device=device,
        )
        return self._call("collage_conv", arguments, stream)

    def move(self, move: Move, given: int, result: int, device: int, stream: int) -> Call:
        """See `Library.move`."""
        batch, rows, columns = move.extents
        arguments = MoveArguments(
            batch=batch,
            rows=rows,
            columns=columns,
            device=device,
            turned=move.turned,
            narrowed=move.narrowed,
            given=given,
            result=result,
        )
        return self._call("collage_move", arguments, stream)

    def place(self, array: np.ndarray[Any, Any], device: int, stream: int) -> Placed:
        """See `Library.place`."""
        return self._contexts.placed(f"cuda:{device}", array)

    def chain(self, chain: Chain, x: float, bias: float, source: float) -> float:
        """Evaluate the epilogue for one element on the host, for tests without a device."""
        values = (chain.first, chain.second, x, bias, source)
        return float(self._library.collage_chain(*map(ctypes.c_float, values)))

    def _call(self, function: str, arguments: ctypes.Structure, stream: int) -> Call:
        enqueue, where, on = getattr(self._library, function), ctypes.byref(arguments), ctypes.c_void_p(stream)

        def call() -> None:
            if status := enqueue(where, on):
                raise self._error(function, status, arguments)

        call.__dict__["keeps"] = arguments
        return call

    def _error(self, function: str, status: int, arguments: Any) -> Exception:
        """Return the error for a call's non-zero status (`collage::answered` in `calls.cuh`)."""
        if status > 0:
            return CutlassError(f"{function}: {self._library.collage_status(status).decode()}")
        text = f"{function}: {self._library.collage_error(-status).decode()}"
        return cuda_error(f"cuda:{arguments.device}", -status, text)
