"""Making a device current: cuBLASLt makes its handle on whatever device that is.

Through CUDA's driver, which every machine with a GPU has, and a device's primary context, which is the one that CuPy,
PyTorch and CUDA's runtime use.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from typing import Any, Protocol

from collage_core.device import cuda_error
from collage_core.errors import DeviceError

_ONE = (ctypes.c_uint(1), ctypes.c_uint(1))


class Contexts(Protocol):
    """Devices, which may be made current."""

    def current(self, device: str) -> contextlib.AbstractContextManager[None]:
        """Makes a device current, in this thread and for as long as the context manager is entered.

        Raises:
            OSError: If the driver is missing, or refuses.
            DeviceError: If it says that the device has no memory, is lost or in use elsewhere.
        """

    def kernel(self, device: str, name: str, code: bytes) -> Launch:
        """A kernel of a device, loaded once.

        Args:
            device: The device.
            name: Of the kernel.
            code: PTX or machine code that has it.

        Raises:
            OSError: If the driver is missing, or refuses.
        """


class Launch(Protocol):
    """A loaded kernel."""

    def __call__(self, blocks: int, threads: int, stream: int, arguments: Any) -> None:
        """Enqueues it, and does not wait.

        Args:
            blocks: How many.
            threads: Of each.
            stream: Where.
            arguments: Array of pointers to its arguments.

        Raises:
            OSError: If the driver refuses.
        """


class PrimaryContexts:
    """CUDA's primary contexts, each retained once for the life of the process."""

    def __init__(self) -> None:
        self._driver: Any = None
        self._made: dict[str, ctypes.c_void_p] = {}
        self._kernels: dict[tuple[str, str], Launch] = {}

    @contextlib.contextmanager
    def current(self, device: str) -> Iterator[None]:
        """See `Contexts.current`."""
        self._call("cuCtxPushCurrent_v2", self._primary(device))
        try:
            yield
        finally:
            self._call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def kernel(self, device: str, name: str, code: bytes) -> Launch:
        """See `Contexts.kernel`; stays loaded for the life of the process."""
        if (device, name) not in self._kernels:
            module, function = ctypes.c_void_p(), ctypes.c_void_p()
            with self.current(device):
                self._call("cuModuleLoadData", ctypes.byref(module), code)
                self._call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
            context = self._primary(device)

            def launch(blocks: int, threads: int, stream: int, arguments: Any) -> None:
                self._call("cuCtxSetCurrent", context)  # a session may run in any thread
                grid, block = (ctypes.c_uint(blocks), *_ONE), (ctypes.c_uint(threads), *_ONE)
                on = ctypes.c_void_p(stream)
                self._call("cuLaunchKernel", function, *grid, *block, ctypes.c_uint(0), on, arguments, None)

            self._kernels[device, name] = launch
        return self._kernels[device, name]

    def _primary(self, device: str) -> ctypes.c_void_p:
        if self._driver is None:
            self._driver = ctypes.CDLL("libcuda.so.1")
            self._call("cuInit", ctypes.c_uint(0))
        if device not in self._made:
            number, context = ctypes.c_int(), ctypes.c_void_p()
            self._call("cuDeviceGet", ctypes.byref(number), ctypes.c_int(int(device.partition(":")[2] or 0)))
            self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), number)
            self._made[device] = context
        return self._made[device]

    def _call(self, function: str, *arguments: Any) -> None:
        if status := getattr(self._driver, function)(*arguments):
            word = ctypes.c_char_p()
            self._driver.cuGetErrorString(status, ctypes.byref(word))
            text = f"{function}: {(word.value or str(status).encode()).decode()}"
            error = cuda_error("cuda", status, text)
            raise OSError(text) if type(error) is DeviceError else error
