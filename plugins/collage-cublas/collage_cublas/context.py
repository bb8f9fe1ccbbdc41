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


class Contexts(Protocol):
    """Devices, which may be made current."""

    def current(self, device: str) -> contextlib.AbstractContextManager[None]:
        """Makes a device current, in this thread and for as long as the context manager is entered.

        Raises:
            OSError: If the driver is missing, or refuses.
            DeviceError: If it says that the device has no memory, is lost or in use elsewhere.
        """


class PrimaryContexts:
    """CUDA's primary contexts, each retained once for the life of the process."""

    def __init__(self) -> None:
        self._driver: Any = None
        self._made: dict[str, ctypes.c_void_p] = {}

    @contextlib.contextmanager
    def current(self, device: str) -> Iterator[None]:
        """See `Contexts.current`."""
        self._call("cuCtxPushCurrent_v2", self._primary(device))
        try:
            yield
        finally:
            self._call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

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
