"""What a fake device forbids while it is captured is what CUDA forbids."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from collage_core.errors import DeviceCaptureError
from collage_core.testing import FakeDevice


def test_memory_that_is_given_back_spoils_a_capture() -> None:
    stream = FakeDevice().open("fake:0")
    held: list[Any] = [stream.allocate(8), stream.allocate(8)]

    with pytest.raises(DeviceCaptureError, match="memory is given back while a call is captured"):
        stream.capture(held.pop)

    stream.capture(lambda: None).launch()  # the stream goes on
    assert stream.device.freed == 1


def test_what_only_the_collector_would_give_back_waits_for_the_end_of_a_capture() -> None:
    stream = FakeDevice().open("fake:0")

    def leave_garbage() -> None:
        cycle: list[Any] = [stream.allocate(8)]
        cycle.append(cycle)

    leave_garbage()

    def enqueue() -> None:
        kept: list[list[int]] = [[] for _ in range(10 * gc.get_threshold()[0])]  # many times what starts a collection
        stream.enqueue("kernel", kept.clear)

    stream.capture(enqueue)  # raises if memory is given back meanwhile

    gc.collect()
    assert stream.device.freed == 1
