from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from collage.measure.clocks.device_clock import time_on_device
from collage.measure.clocks.rotation import copies_needed
from collage_core.contract import Protocol
from collage_core.errors import DeviceLostError
from collage_testing.kit import FakeDevice
from collage_testing.kit.fake_stream import FakeStream
from collage_testing.kit.fake_time import MISS_BYTES_PER_US

PROTOCOL = Protocol(warmup_runs=2, warmup_s=0, min_samples=3, max_samples=3, duration_s=0, min_sample_us=40)


def kernel(stream: FakeStream, us: float, weights: int = 0, nbytes: int = 0) -> Callable[[], None]:
    reads = [(weights, nbytes)] if nbytes else []
    return lambda: stream.enqueue("k", lambda: None, us=us, reads=reads)


@pytest.mark.parametrize("graph", [True, False])
def test_a_kernel_takes_what_the_device_says_it_does(graph: bool) -> None:
    device = FakeDevice()
    stream = device.open("fake:0")

    taken = time_on_device(stream, [kernel(stream, 8.0)], PROTOCOL, graph=graph)

    assert (taken.samples_us, taken.warmup_runs, taken.calls_per_sample) == ((8.0, 8.0, 8.0), 2, 5)
    assert (taken.launch, taken.launch_reason, taken.weight_copies) == ("graph" if graph else "eager", "", 1)
    assert device.kinds("capture") == (["capture"] if graph else [])
    # one launch sends the graph to the device, one says how long it is; one keeps it busy, the others are samples
    assert device.kinds("launch") == (["launch"] * (2 + 1 + 3) if graph else [])


def test_what_a_graph_s_launch_takes_is_not_in_the_time_of_a_kernel_in_it() -> None:
    stream = FakeDevice(launch_us=30.0).open("fake:0")

    taken = time_on_device(stream, [kernel(stream, 8.0)], PROTOCOL, graph=True)

    assert taken.samples_us == (8.0, 8.0, 8.0)
    assert taken.calls_per_sample * 8.0 >= 40  # though one by itself takes 38 with its launch


@pytest.mark.parametrize(("us", "paid_us"), [(2.0, 5.0), (8.0, 8.0)])
def test_launched_one_by_one_a_kernel_takes_its_launch_or_itself_whichever_is_longer(us: float, paid_us: float) -> None:
    stream = FakeDevice(launch_us=5.0).open("fake:0")

    taken = time_on_device(stream, [kernel(stream, us)], PROTOCOL, graph=False)

    # of the first call its launch, or of the last the kernel itself, stands alone
    rest_us = min(us, 5.0) / taken.calls_per_sample
    assert taken.samples_us == pytest.approx([paid_us + rest_us] * 3)


def test_a_graph_as_long_as_a_plan_is_launched_by_itself() -> None:
    device = FakeDevice()
    stream = device.open("fake:0")

    time_on_device(stream, [kernel(stream, 5000.0)], PROTOCOL, graph=True)

    assert device.kinds("launch") == ["launch"] * (2 + 3)


def test_what_cannot_be_captured_is_timed_one_by_one_and_says_why() -> None:
    device = FakeDevice()
    stream = device.open("fake:0")
    costs = itertools.cycle([6.0, 10.0])

    def allocating() -> None:
        stream.allocate(16)
        stream.enqueue("k", lambda: None, us=next(costs))

    taken = time_on_device(stream, [allocating], PROTOCOL, graph=True)

    assert device.kinds("capture", "launch") == ["capture"]
    assert taken.calls_per_sample == 7
    assert sum(taken.samples_us) == pytest.approx(8 * 3, abs=1)
    assert taken.launch == "eager"
    assert "could not be captured: device fake:0: a call allocates while it is captured" in taken.launch_reason


def test_a_lost_device_is_not_taken_for_one_that_cannot_capture() -> None:
    device = FakeDevice(lost_after=12)
    stream = device.open("fake:0")

    with pytest.raises(DeviceLostError):
        time_on_device(stream, [kernel(stream, 1.0)], PROTOCOL, graph=True)


@pytest.mark.parametrize("graph", [True, False])
@pytest.mark.parametrize("nbytes", [100, 999, 1000, 1001, 4000])
def test_weights_read_in_turn_are_not_found_in_the_cache(nbytes: int, graph: bool) -> None:
    device = FakeDevice(cache_bytes=4000)
    stream = device.open("fake:0")
    copies = copies_needed(nbytes, device.time.cache_bytes, stream.free_bytes)

    def timed(count: int) -> set[float]:
        calls = [kernel(stream, 1.0, 10_000 * (number + 1), nbytes) for number in range(count)]
        taken = time_on_device(stream, calls, PROTOCOL, graph=graph)
        assert taken.calls_per_sample % count == 0
        assert taken.weight_copies == count
        return {round(us, 6) for us in taken.samples_us}

    cold_us = 1.0 + nbytes / MISS_BYTES_PER_US
    assert timed(copies) == {cold_us}
    assert timed(1) == {1.0}
    if copies > 2:
        assert timed(copies - 2) == {1.0}  # so no fewer would do
