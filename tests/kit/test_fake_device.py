"""A fake device shows what is used too early, too late, or while it must not be."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

from collage_core.errors import DeviceCaptureError, DeviceUseError
from collage_testing.kit import FakeDevice


def test_a_copy_reads_memory_of_the_host_when_it_is_made_and_not_when_it_is_asked_for() -> None:
    stream = FakeDevice().open("fake:0")
    memory, source, target = stream.allocate(4), np.full(4, 1, np.uint8), np.zeros(4, np.uint8)
    stream.write(memory.pointer, source)
    source[...] = 2

    stream.read(target, memory.pointer)

    assert target.tolist() == [2] * 4


def test_memory_of_the_host_that_goes_before_the_copy_is_made_is_an_error() -> None:
    stream = FakeDevice().open("fake:0")
    memory = stream.allocate(4)
    stream.write(memory.pointer, np.zeros(4, np.uint8))

    with pytest.raises(DeviceUseError, match="memory of the host is gone"):
        stream.synchronise()


def test_memory_given_back_while_it_is_captured_is_an_error() -> None:
    stream = FakeDevice().open("fake:0")
    held = [stream.allocate(4)]

    with pytest.raises(DeviceCaptureError, match="memory is given back while a call is captured"):
        stream.capture(held.clear)


class Owner:
    """Refers to itself, so only a collection of cycles gives back what it owns."""

    def __init__(self, memory: Any) -> None:
        self.memory, self.itself = memory, self


def test_nothing_is_collected_while_it_is_captured() -> None:
    stream = FakeDevice().open("fake:0")
    gc.collect()  # the next collection is then hundreds of allocations away
    gone = weakref.ref(Owner(stream.allocate(4)))

    def enqueue() -> None:
        assert len([[] for _ in range(50_000)]) == 50_000  # so many start a collection otherwise

    stream.capture(enqueue)

    assert gone() is not None
