"""The CUDA driver calls that launch a cubin, by ctypes: loading a package imports no toolchain library.

Signatures are those of cuda.h. The context is that of the stream kernels enqueue on, made when the device was
opened.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Sequence
from typing import Any

from collage_core.errors import DeviceError, KernelError
from collage_cuda import cuda_error

_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_DEFAULT_SHARED = 48 * 1024


class Driver:
    """The driver's library.

    Args:
        library: The library; the installed one if None.

    Raises:
        OSError: If there is none.
        KernelError: If it does not start; this and all other calls here raise a `DeviceError` if the status is about
            the device: no memory, lost, no code for it.
    """

    def __init__(self, library: Any = None) -> None:
        self._cuda = ctypes.CDLL("libcuda.so.1") if library is None else library
        self._names: dict[int | None, str] = {}
        self._functions: dict[tuple[int | None, bytes, str, int], ctypes.c_void_p] = {}
        self._check("cuInit", self._cuda.cuInit(0))

    def _check(self, what: str, status: int, device: str = "cuda") -> None:
        if status:
            text = ctypes.c_char_p()
            self._cuda.cuGetErrorString(status, ctypes.byref(text))
            said = f"{what} failed with {status}: {(text.value or b'unknown').decode()}"
            error = cuda_error(device, status, said)
            raise KernelError(said) if type(error) is DeviceError else error

    def context_of(self, stream: int, device: str) -> ctypes.c_void_p:
        """Return the context of a stream and make it current.

        The caller thus does not need CUDA's number of the stream's device.

        Args:
            stream: Handle of the stream.
            device: The device's name, for errors.
        """
        context = ctypes.c_void_p()
        found = self._cuda.cuStreamGetCtx(ctypes.c_void_p(stream), ctypes.byref(context))
        self._check("cuStreamGetCtx", found, device)
        self._check("cuCtxSetCurrent", self._cuda.cuCtxSetCurrent(context), device)
        self._names[context.value] = device
        return context

    def function(self, context: ctypes.c_void_p, cubin: bytes, name: str, shared_bytes: int) -> ctypes.c_void_p:
        """Return a function of a cubin, loaded once and kept for the lifetime of the process.

        A kernel under measurement is loaded many times, each time with its own weights, which are not part of its code.

        Args:
            context: The current context, in which the function is loaded.
            cubin: Machine code for this device.
            name: Name of the function.
            shared_bytes: Dynamic shared memory of its launches, in bytes.
        """
        key = context.value, hashlib.sha256(cubin).digest(), name, shared_bytes
        if key in self._functions:
            return self._functions[key]
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        device = self._names.get(context.value, "cuda")
        self._check("cuModuleLoadData", self._cuda.cuModuleLoadData(ctypes.byref(module), cubin), device)
        found = self._cuda.cuModuleGetFunction(ctypes.byref(function), module, name.encode())
        self._check("cuModuleGetFunction", found, device)
        if shared_bytes > _DEFAULT_SHARED:
            status = self._cuda.cuFuncSetAttribute(function, _MAX_DYNAMIC_SHARED, shared_bytes)
            self._check("cuFuncSetAttribute", status, device)
        self._functions[key] = function
        return function

    def launch(
        self,
        context: ctypes.c_void_p,
        function: ctypes.c_void_p,
        grid: Sequence[int],
        threads: int,
        shared_bytes: int,
        stream: int,
        arguments: Any,
    ) -> None:
        """Enqueue a kernel without waiting.

        Args:
            context: Context in which the function was loaded; made current, since a session may run in any thread.
            function: The function.
            grid: Number of programs along two axes.
            threads: Threads per program.
            shared_bytes: Dynamic shared memory per program, in bytes.
            stream: Stream on which to enqueue.
            arguments: Array of pointers to the arguments.

        Raises:
            KernelError: If the driver refuses.
        """
        device = self._names.get(context.value, "cuda")
        self._check("cuCtxSetCurrent", self._cuda.cuCtxSetCurrent(context), device)
        status = self._cuda.cuLaunchKernel(
            function, grid[0], grid[1], 1, threads, 1, 1, shared_bytes, ctypes.c_void_p(stream), arguments, None
        )
        self._check("cuLaunchKernel", status, device)
