"""NVIDIA's driver over a fake device. "Compiling" hands the source over, and launching has it interpreted.

So a whole plugin runs without a GPU, from its targets to launches in a graph, and only what is inside a cubin is not
what it will be. What a kernel reads and writes is looked up in the fake device's memory when the stream comes to it.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from collage_core.contract import Device, Host
from collage_core.errors import DeviceUseError
from collage_core.registry import Toolchain
from collage_testing.kit import DeviceMachine, FakeDevice, stream_of
from collage_triton.compile import ALIGNED_BYTES, Compiled
from collage_triton.driver import Driver
from collage_triton.interpreter import Interpreter
from collage_triton.nest import Parameter
from collage_triton.plugin import TritonPlugin
from collage_triton.tiles import Tile

H200 = Device(name="cuda:0", model="NVIDIA H200", compute_capability="9.0", driver="580.65.06", memory_bytes=141 << 30)
HOST = Host(system="Linux x86_64", cpu="test", physical_cores=1, cpu_flags=frozenset(), memory_bytes=1, devices=(H200,))
"""A machine with a GPU that is not there."""

VERSIONS: Mapping[str, str] = MappingProxyType({"triton": "3.9.0", "cupy": ""})
"""What is installed there."""

_TYPES: Mapping[str, str] = MappingProxyType(
    {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "i64": "int64", "i32": "int32", "i8": "int8"}
    | dict.fromkeys(("u8", "i1"), "uint8")
)
_SCRATCH = 2
_INVALID_VALUE, _INVALID_IMAGE, _INVALID_HANDLE, _NOT_FOUND, _MISALIGNED = 1, 200, 400, 500, 716  # CUresult in cuda.h
_MOST_THREADS = 1024
_MOST_PROGRAMS = (2**31 - 1, 65535)  # of a grid, along its axes
_WITHOUT_ASKING, _ASKED = 48 << 10, 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES in cuda.h
_SHARED = 64 << 10


def compile_source(
    source: str, parameters: Sequence[Parameter], tile: Tile, capability: str, *, aligned: bool, cache: Path
) -> Compiled:
    """Takes the place of `compile_kernel`: an image that `EmulatedCuda` loads."""
    image = {
        "source": source,
        "parameters": [[_TYPES[each.dtype], each.elements] for each in parameters],
        "outputs": sum(each.name.startswith("out") for each in parameters),
        "capability": capability,
        "aligned": aligned,
    }
    return Compiled(json.dumps(image).encode(), "kernel", 32 * tile.warps, _SHARED, _SCRATCH)


class EmulatedCuda:
    """The functions of the driver's library that `Driver` calls; see the CUDA driver API for what they do.

    Args:
        device: Whose memory and streams.
        interpreter: Runs the kernels.
        capability: Of the device.
    """

    def __init__(self, device: FakeDevice, interpreter: Interpreter, capability: str = "9.0") -> None:
        self._device = device
        self._interpreter = interpreter
        self._capability = capability
        self._images: list[dict[str, Any]] = []
        self._shared: dict[int | None, int] = {}

    def cuInit(self, flags: int) -> int:  # noqa: N802  NVIDIA's name, as all that follow
        """Starts."""
        return 0

    def cuGetErrorString(self, status: int, text: Any) -> int:  # noqa: N802
        """Says nothing more than the number does."""
        ctypes.cast(text, ctypes.POINTER(ctypes.c_char_p))[0] = b"emulated"
        return 0

    def cuStreamGetCtx(self, stream: ctypes.c_void_p, context: Any) -> int:  # noqa: N802
        """The context of every stream of the device is one."""
        try:
            stream_of(stream.value)
        except DeviceUseError:
            return _INVALID_HANDLE
        _answer(context, 1)
        return 0

    def cuCtxSetCurrent(self, context: ctypes.c_void_p) -> int:  # noqa: N802
        """There is nothing to change."""
        return 0 if context.value else _INVALID_VALUE

    def cuModuleLoadData(self, module: Any, image: bytes) -> int:  # noqa: N802
        """Takes images made for this device."""
        known = json.loads(image)
        if known["capability"] != self._capability:
            return _INVALID_IMAGE
        self._images.append(known)
        _answer(module, len(self._images))
        return 0

    def cuModuleGetFunction(self, function: Any, module: ctypes.c_void_p, name: bytes) -> int:  # noqa: N802
        """A module has one function."""
        if name != b"kernel" or not module.value:
            return _NOT_FOUND
        _answer(function, module.value)
        return 0

    def cuFuncSetAttribute(self, function: ctypes.c_void_p, attribute: int, value: int) -> int:  # noqa: N802
        """How much shared memory a launch may ask for."""
        if attribute != _ASKED:
            return _INVALID_VALUE
        self._shared[function.value] = value
        return 0

    def cuLaunchKernel(  # noqa: N802
        self,
        function: ctypes.c_void_p,
        grid_x: int,
        grid_y: int,
        grid_z: int,
        threads: int,
        threads_y: int,
        threads_z: int,
        shared_bytes: int,
        stream: ctypes.c_void_p,
        arguments: Any,
        extra: None,
    ) -> int:
        """Enqueues the interpretation of a kernel."""
        image = self._images[(function.value or 0) - 1]
        shape, grid = (grid_z, threads_y, threads_z), (grid_x, grid_y)
        if shape != (1, 1, 1) or not 0 < threads <= _MOST_THREADS or threads % 32:
            return _INVALID_VALUE
        if any(not 0 < programs <= most for programs, most in zip(grid, _MOST_PROGRAMS, strict=True)):
            return _INVALID_VALUE
        if shared_bytes > self._shared.get(function.value, _WITHOUT_ASKING):
            return _INVALID_VALUE
        pointers = [ctypes.cast(each, ctypes.POINTER(ctypes.c_uint64))[0] for each in arguments]
        places = list(zip(pointers, image["parameters"], strict=False))
        if len(pointers) != len(places) + _SCRATCH or any(pointers[len(places) :]):
            return _INVALID_VALUE
        if image["aligned"] and any(pointer % ALIGNED_BYTES for pointer in pointers):
            return _MISALIGNED

        def work() -> None:
            views = [self._device.view(at, (count,), np.dtype(dtype)) for at, (dtype, count) in places]
            found = self._interpreter.run(image["source"], grid, views, image["outputs"])
            for view, array in zip(views[len(views) - len(found) :], found, strict=True):
                np.copyto(view, array)

        stream_of(stream.value).enqueue("kernel", work)
        return 0


def emulated(device: FakeDevice, interpreter: Interpreter) -> TritonPlugin:
    """The plugin on a machine of which only the interpreter is there.

    Args:
        device: In place of the GPU, of the name `"cuda:0"`.
        interpreter: Runs the kernels.
    """
    return TritonPlugin(VERSIONS.get, lambda: Driver(EmulatedCuda(device, interpreter)), compile_source)


def emulated_machine(interpreter: Interpreter) -> DeviceMachine:
    """The plugin and its device."""
    device = FakeDevice("cuda:0")
    return DeviceMachine.fake(Toolchain("triton", emulated(device, interpreter)), HOST, device)


def _answer(place: Any, value: int) -> None:
    ctypes.cast(place, ctypes.POINTER(ctypes.c_void_p))[0] = value
