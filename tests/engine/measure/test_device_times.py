"""What a device takes for copies, launches and waits: a fake one's declared times are found."""

from __future__ import annotations

import itertools

import pytest

from collage.devices.providers import Providers
from collage.measure.clocks.device_times import SIZES, WITHIN_SIZES, time_device
from collage.measure.wire.outcomes import DeviceTimes
from collage_core.contract import CopyFigures, DeviceStream
from collage_core.errors import DeviceLostError, DeviceMemoryError
from collage_testing.kit import FakeDevice
from collage_testing.kit.fake_time import BYTES_PER_US, COPY_US


def test_the_line_through_a_fake_device_s_times_is_what_it_declares() -> None:
    ticks = itertools.count(0, 3000)

    times = time_device(FakeDevice(cache_bytes=1 << 20).open("fake:0"), clock_ns=lambda: next(ticks))

    declared = CopyFigures(latency_us=COPY_US, bytes_per_us=BYTES_PER_US)
    for line, share in ((times.to_device, 1), (times.from_device, 1), (times.within, 10)):
        assert [size for size, _ in line] == list(WITHIN_SIZES if line is times.within else SIZES)
        found = CopyFigures.fitted(line)
        assert found.latency_us == pytest.approx(declared.latency_us / share, rel=1e-5)
        assert found.bytes_per_us == pytest.approx(declared.bytes_per_us * share, rel=1e-5)
    assert (times.wait_us, times.cache_bytes) == (3.0, 1 << 20)


@pytest.mark.parametrize(("launch_us", "left_us"), [(0.0, 0.0), (5.0, 0.0), (30.0, 30.0 - COPY_US)])
def test_a_launch_behind_a_copy_takes_what_the_copy_does_not_hide(launch_us: float, left_us: float) -> None:
    times = time_device(FakeDevice(launch_us=launch_us).open("fake:0"))

    start_us = CopyFigures.fitted(times.graphs).latency_us - times.to_device[0][1]

    assert max(0.0, start_us) == pytest.approx(left_us, abs=0.5)


def test_memory_for_the_small_copies_only_is_enough() -> None:
    times = time_device(FakeDevice(memory_bytes=1 << 22).open("fake:0"))

    assert [size for size, _ in times.to_device] == list(SIZES[:3])


def test_with_memory_for_two_sizes_copies_within_are_of_these_too() -> None:
    times = time_device(FakeDevice(memory_bytes=1 << 18).open("fake:0"))

    assert [size for size, _ in times.within] == [size for size, _ in times.to_device] == list(SIZES[:2])


def test_with_less_the_device_is_not_measured_and_says_why() -> None:
    with pytest.raises(DeviceMemoryError, match="4096 bytes are free, too few to time copies"):
        time_device(FakeDevice(memory_bytes=4096).open("fake:0"))


def test_a_lost_device_is_an_error_also_within_a_graph() -> None:
    healthy = FakeDevice()
    time_device(healthy.open("fake:0"))
    lost_after = healthy.kinds().index("capture")

    with pytest.raises(DeviceLostError):
        time_device(FakeDevice(lost_after=lost_after).open("fake:0"))


def test_a_device_without_graphs_is_measured_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = FakeDevice().open("fake:0")
    monkeypatch.setattr(type(stream), "capture", lambda self, enqueue: self.another().missing)

    assert time_device(stream).graphs == ()


def test_memory_is_given_back() -> None:
    device = FakeDevice()

    time_device(device.open("fake:0"))

    assert device.allocated == 0


def check_plausible(stream: DeviceStream) -> DeviceTimes:
    """What holds of any device."""
    times = time_device(stream)
    for line in (times.to_device, times.from_device, times.within):
        assert len(line) == len(SIZES)
        assert line[-1][1] > line[0][1] > 0
        figures = CopyFigures.fitted(line)
        assert figures.copy_us(line[-1][0]) == pytest.approx(line[-1][1], rel=0.5)
    assert times.graphs[-1][1] >= times.graphs[0][1] > 0
    assert times.wait_us > 0
    return times


def test_a_fake_device_s_times_are_plausible() -> None:
    check_plausible(FakeDevice().open("fake:0"))


@pytest.mark.gpu("cupy")
def test_a_gpu_s_times_are_plausible() -> None:
    stream = Providers.discover().open("cuda:0")

    times = check_plausible(stream)

    assert times.cache_bytes >= 1 << 18  # the smallest of any that CUDA 12 supports
    assert 2 * WITHIN_SIZES[-1] < stream.free_bytes
