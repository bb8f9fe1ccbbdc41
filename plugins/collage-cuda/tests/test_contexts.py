"""Primary contexts over a driver that notes what it is asked."""

# ruff: noqa: N802  CUDA names its functions

from __future__ import annotations

import ctypes
import gc
from typing import Any

import numpy as np
import pytest

from collage_core.errors import DeviceLostError, DeviceMemoryError
from collage_cuda import PrimaryContexts


class Driver:
    """CUDA's driver of a machine with two devices, whose memory is the host's.

    Attributes:
        stack: Contexts made current and not taken off again.
        memory: What was allocated and not freed, by address.
        made: How often a primary context was retained.
        waits: How often copies were waited for.
    """

    def __init__(self, **fails: int) -> None:
        self.stack: list[int] = []
        self.memory: dict[int, Any] = {}
        self.made = self.waits = 0
        self._fails = fails

    def __getattribute__(self, name: str) -> Any:
        fails = object.__getattribute__(self, "_fails") if name.startswith("cu") else {}
        return (lambda *_: fails[name]) if name in fails else object.__getattribute__(self, name)

    def cuGetErrorString(self, status: int, word: Any) -> int:
        word._obj.value = b"it said so"
        return 0

    def cuDeviceGet(self, device: Any, number: ctypes.c_int) -> int:
        device._obj.value = number.value
        return 0

    def cuDevicePrimaryCtxRetain(self, context: Any, device: ctypes.c_int) -> int:
        context._obj.value = device.value + 1
        self.made += 1
        return 0

    def cuCtxPushCurrent_v2(self, context: ctypes.c_void_p) -> int:
        self.stack.append(context.value or 0)
        return 0

    def cuCtxPopCurrent_v2(self, context: Any) -> int:
        context._obj.value = self.stack.pop()
        return 0

    def cuMemAlloc_v2(self, place: Any, size: ctypes.c_size_t) -> int:
        assert self.stack
        made = ctypes.create_string_buffer(size.value)
        place._obj.value = ctypes.addressof(made)
        self.memory[ctypes.addressof(made)] = made
        return 0

    def cuMemcpyHtoD_v2(self, place: ctypes.c_uint64, source: ctypes.c_void_p, size: ctypes.c_size_t) -> int:
        ctypes.memmove(place.value, source, size.value)
        return 0

    def cuStreamSynchronize(self, stream: None) -> int:
        self.waits += 1
        return 0

    def cuMemFree_v2(self, place: ctypes.c_uint64) -> int:
        assert self.stack
        del self.memory[place.value]
        return 0


def test_a_device_is_current_inside_and_what_was_before_it_afterwards() -> None:
    driver = Driver()
    contexts = PrimaryContexts(driver)

    with contexts.current("cuda:1"):
        assert driver.stack == [2]
        with contexts.current("cuda:0"):
            assert driver.stack == [2, 1]
    with contexts.current("cuda:1"), pytest.raises(KeyError), contexts.current("cuda:0"):
        raise KeyError
    assert driver.stack == []
    assert driver.made == 2


def test_an_array_is_copied_and_its_memory_given_back_with_it() -> None:
    driver = Driver()
    contexts = PrimaryContexts(driver)
    array = np.arange(6, dtype=np.float32)

    placed, empty = contexts.placed("cuda:0", array), contexts.placed("cuda:1", array[:0])

    assert driver.memory[placed.pointer].raw == array.tobytes()
    assert empty.pointer in driver.memory
    assert driver.waits == 2
    del placed, empty
    gc.collect()
    assert driver.memory == {}
    assert driver.stack == []


@pytest.mark.parametrize(
    ("function", "status", "kind"),
    [
        ("cuMemAlloc_v2", 2, DeviceMemoryError),
        ("cuMemcpyHtoD_v2", 700, DeviceLostError),
        ("cuDevicePrimaryCtxRetain", 999, OSError),
    ],
)
def test_what_the_driver_says_of_a_device_is_an_error_of_its_kind(
    function: str, status: int, kind: type[Exception]
) -> None:
    driver = Driver(**{function: status})

    with pytest.raises(kind, match=f"{function}: it said so"):
        PrimaryContexts(driver).placed("cuda:0", np.zeros(2, np.float32))

    assert driver.stack == []


def test_a_device_that_was_lost_is_no_trouble_when_memory_goes() -> None:
    driver = Driver(cuMemFree_v2=700)
    placed = PrimaryContexts(driver).placed("cuda:0", np.zeros(2, np.float32))

    del placed
    gc.collect()

    assert driver.stack == []
