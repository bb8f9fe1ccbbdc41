from __future__ import annotations

import itertools

import pytest

from collage_core.contract import Protocol
from collage_core.errors import DeviceLostError
from collage_core.measure.device_clock import time_on_device
from collage_core.testing import FakeDevice

PROTOCOL = Protocol(warmup_runs=2, warmup_s=0, min_samples=3, max_samples=3, duration_s=0, min_sample_us=40)


@pytest.mark.parametrize("graph", [True, False])
def test_a_kernel_takes_what_the_device_says_it_does(graph: bool) -> None:
    device = FakeDevice()
    stream = device.open("fake:0")

    taken = time_on_device(stream, lambda: stream.enqueue("k", lambda: None, us=8.0), PROTOCOL, graph=graph)

    assert (taken.samples_us, taken.warmup_runs, taken.calls_per_sample) == ((8.0, 8.0, 8.0), 2, 5)
    assert device.kinds("capture") == (["capture"] if graph else [])
    # one launch sends the graph to the device, each of the others is a sample
    assert device.kinds("launch") == (["launch"] * 4 if graph else [])


def test_what_cannot_be_captured_is_timed_one_by_one() -> None:
    device = FakeDevice()
    stream = device.open("fake:0")
    costs = itertools.cycle([6.0, 10.0])

    def allocating() -> None:
        stream.allocate(16)
        stream.enqueue("k", lambda: None, us=next(costs))

    taken = time_on_device(stream, allocating, PROTOCOL, graph=True)

    assert device.kinds("capture", "launch") == ["capture"]
    assert taken.calls_per_sample == 7
    assert sum(taken.samples_us) == pytest.approx(8 * 3, abs=1)


def test_a_lost_device_is_not_taken_for_one_that_cannot_capture() -> None:
    device = FakeDevice(lost_after=12)
    stream = device.open("fake:0")

    with pytest.raises(DeviceLostError):
        time_on_device(stream, lambda: stream.enqueue("k", lambda: None), PROTOCOL, graph=True)
