"""Access devices through CUDA's driver API, for libraries that use the current device.

Every machine with a GPU has the driver. Contexts are the primary ones, which CuPy, PyTorch and CUDA's runtime use.
Devices have the driver's numbers, as `Device.name` has them.
"""

from __future__ import annotations

import contextlib
import ctypes
import weakref
from collections.abc import Iterator
from typing import Any, Final, Protocol

import numpy as np

from collage_core.errors import DeviceError
from collage_cuda.error_codes import cuda_error

_ONE: Final = (ctypes.c_uint(1), ctypes.c_uint(1))


class Contexts(Protocol):
    """Devices that can be made current.

    All calls raise `OSError` if the driver is missing or refuses, and `DeviceError` if it reports that the
    device is out of memory, lost or in use elsewhere.
    """

    def current(self, device: str) -> contextlib.AbstractContextManager[None]:
        """Make a device current in this thread while the context manager is entered."""

    def kernel(self, device: str, name: str, code: bytes) -> Launch:
        """Return a kernel of a device, loaded once.

        Args:
            device: The device.
            name: Name of the kernel.
            code: PTX or machine code that contains the kernel.
        """

    def placed(self, device: str, array: np.ndarray[Any, Any]) -> DeviceArray:
        """Copy a C-contiguous array to device memory and wait for the copy."""


class Launch(Protocol):
    """A loaded kernel."""

    def __call__(self, blocks: int, threads: int, stream: int, arguments: Any) -> None:
        """Enqueue the kernel without waiting.

        Args:
            blocks: Number of thread blocks.
            threads: Threads per block.
            stream: Handle of the stream to enqueue on.
            arguments: Array of pointers to the kernel's arguments.

        Raises:
            OSError: If the driver refuses.
            DeviceError: If the driver's error code identifies a device problem.
        """


class DeviceArray:
    """Device memory that is freed when this object is collected.

    Args:
        pointer: Address of the memory.

    Attributes:
        pointer: Address of the memory.
    """

    __slots__ = ("__weakref__", "pointer")

    def __init__(self, pointer: int) -> None:
        self.pointer = pointer


class PrimaryContexts:
    """CUDA's primary contexts, each retained once for the life of the process; see `Contexts`.

    Args:
        driver: The driver library; if None, the installed one, loaded on first use.
    """

    def __init__(self, driver: Any = None) -> None:
        self._driver = driver
        self._made: dict[str, ctypes.c_void_p] = {}
        self._kernels: dict[tuple[str, str], Launch] = {}

    @contextlib.contextmanager
    def current(self, device: str) -> Iterator[None]:
        """See `Contexts.current`."""
        self._call(device, "cuCtxPushCurrent_v2", self._primary(device))
        try:
            yield
        finally:
            self._call(device, "cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def kernel(self, device: str, name: str, code: bytes) -> Launch:
        """See `Contexts.kernel`; stays loaded for the life of the process."""
        if (device, name) not in self._kernels:
            module, function = ctypes.c_void_p(), ctypes.c_void_p()
            with self.current(device):
                self._call(device, "cuModuleLoadData", ctypes.byref(module), code)
                self._call(device, "cuModuleGetFunction", ctypes.byref(function), module, name.encode())
            context = self._primary(device)

            def launch(blocks: int, threads: int, stream: int, arguments: Any) -> None:
                self._call(device, "cuCtxSetCurrent", context)  # a session may run in any thread
                grid, block = (ctypes.c_uint(blocks), *_ONE), (ctypes.c_uint(threads), *_ONE)
                on = ctypes.c_void_p(stream)
                self._call(device, "cuLaunchKernel", function, *grid, *block, ctypes.c_uint(0), on, arguments, None)

            self._kernels[device, name] = launch
        return self._kernels[device, name]

    def placed(self, device: str, array: np.ndarray[Any, Any]) -> DeviceArray:
        """See `Contexts.placed`."""
        place, size = ctypes.c_uint64(), ctypes.c_size_t(array.nbytes)
        with self.current(device):
            self._call(device, "cuMemAlloc_v2", ctypes.byref(place), ctypes.c_size_t(max(1, array.nbytes)))
            made = DeviceArray(int(place.value))
            weakref.finalize(made, self._free, device, place).atexit = False  # the driver may be gone by then
            self._call(device, "cuMemcpyHtoD_v2", place, ctypes.c_void_p(array.ctypes.data), size)
            # a copy from pageable memory may return before it has arrived; to wait for all of the context is invalid
            # while any of its streams is captured, by whichever thread
            self._call(device, "cuStreamSynchronize", None)
        return made

    def _free(self, device: str, place: ctypes.c_uint64) -> None:
        with contextlib.suppress(OSError, DeviceError), self.current(device):
            self._call(device, "cuMemFree_v2", place)

    def _primary(self, device: str) -> ctypes.c_void_p:
        if self._driver is None:
            self._driver = ctypes.CDLL("libcuda.so.1")
            self._call(device, "cuInit", ctypes.c_uint(0))
        if device not in self._made:
            number, context = ctypes.c_int(), ctypes.c_void_p()
            self._call(device, "cuDeviceGet", ctypes.byref(number), ctypes.c_int(int(device.partition(":")[2] or 0)))
            self._call(device, "cuDevicePrimaryCtxRetain", ctypes.byref(context), number)
            self._made[device] = context
        return self._made[device]

    def _call(self, device: str, function: str, *arguments: Any) -> None:
        if status := getattr(self._driver, function)(*arguments):
            word = ctypes.c_char_p()
            self._driver.cuGetErrorString(status, ctypes.byref(word))
            text = f"{function}: {(word.value or str(status).encode()).decode()}"
            error = cuda_error(device, status, text)
            raise OSError(text) if type(error) is DeviceError else error
