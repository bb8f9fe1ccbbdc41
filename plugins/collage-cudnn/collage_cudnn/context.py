"""A device's context and memory, by CUDA's driver, which every machine with a GPU has.

Contexts are the primary ones, which CuPy, PyTorch and CUDA's runtime use. Memory is asked for when a kernel is loaded,
for weights that cuDNN wants in another order; calls allocate nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import weakref
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np


class Contexts(Protocol):
    """Devices, which may be made current."""

    def current(self, device: str) -> contextlib.AbstractContextManager[None]:
        """Makes a device current, in this thread and for as long as the context manager is entered.

        Raises:
            OSError: If the driver is missing, or refuses.
        """

    def placed(self, device: str, array: np.ndarray[Any, Any]) -> DeviceArray:
        """Copies an array to memory of a device, and waits for it.

        Raises:
            OSError: If there is too little.
        """


class DeviceArray:
    """Memory of a device, given back when this is collected.

    Args:
        pointer: Its address.

    Attributes:
        pointer: The same.
    """

    __slots__ = ("__weakref__", "pointer")

    def __init__(self, pointer: int) -> None:
        self.pointer = pointer


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

    def placed(self, device: str, array: np.ndarray[Any, Any]) -> DeviceArray:
        """See `Contexts.placed`."""
        place = ctypes.c_uint64()
        with self.current(device):
            self._call("cuMemAlloc_v2", ctypes.byref(place), ctypes.c_size_t(max(1, array.nbytes)))
            made = DeviceArray(int(place.value))
            weakref.finalize(made, self._free, device, place).atexit = False  # the driver may be gone by then
            self._call("cuMemcpyHtoD_v2", place, ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes))
            self._call("cuCtxSynchronize")  # a copy from pageable memory may return before it has arrived
        return made

    def _free(self, device: str, place: ctypes.c_uint64) -> None:
        with contextlib.suppress(OSError), self.current(device):
            self._call("cuMemFree_v2", place)

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
            raise OSError(f"{function}: {(word.value or str(status).encode()).decode()}")
