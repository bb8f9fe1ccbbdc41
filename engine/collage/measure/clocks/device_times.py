"""Measure a device's costs beside kernels: copies, graph launches and waits."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Final

from collage.devices.opening import is_lost
from collage.measure.wire.outcomes import DeviceTimes
from collage_core.contract import DeviceStream, Event
from collage_core.errors import DeviceMemoryError

SIZES: Final = (1 << 12, 1 << 15, 1 << 18, 1 << 22)
"""Sizes in bytes of the timed copies: small ones show the latency, large ones the time per byte."""
WITHIN_SIZES: Final = tuple(4 * size for size in SIZES)
"""Sizes of the copies within a device: an H200 copies 4 MiB in less time than the host takes to enqueue the copy."""
GRAPH_SIZES: Final = (1, 4, 16)

_FEW_BYTES = 256
_WARMUP_RUNS = 2
_RUNS = 15


def time_device(device: DeviceStream, clock_ns: Callable[[], int] = time.perf_counter_ns) -> DeviceTimes:
    """Time copies of several sizes in each direction, graph launches, and waits; return medians of each.

    A copy is made as a plan makes it: by itself, on the stream, from or into pinned memory of the host. It is timed
    by events of the device before and after it; the stream is idle before, so the time to enqueue it is included.
    Larger copies that do not fit into memory are left out.

    Args:
        device: Device to time; nothing else uses its stream meanwhile.
        clock_ns: The host's clock, in nanoseconds, for the host's waiting time.

    Raises:
        DeviceError: If it lacks the memory for two sizes, or fails.
    """
    sizes = [size for size in SIZES if 2 * size <= device.free_bytes // 2]
    if len(sizes) < 2:
        raise DeviceMemoryError(device.name, f"{device.free_bytes} bytes are free, too few to time copies")
    wide = [size for size in WITHIN_SIZES if 2 * size <= device.free_bytes // 2]
    wide = wide if len(wide) > 1 else sizes
    most = max(sizes[-1], wide[-1])
    here, other = device.allocate(most), device.allocate(most)
    pinned = device.allocate_host(sizes[-1])
    pinned[...] = 0  # has the pages there
    stopwatch = _Stopwatch(device)

    def to_device(size: int) -> None:
        device.write(here.pointer, pinned[:size])

    def from_device(size: int) -> None:
        device.read(pinned[:size], here.pointer)

    def within(size: int) -> None:
        device.copy(other.pointer, here.pointer, size)

    def line(copy: Callable[[int], None], sizes: Sequence[int] = sizes) -> tuple[tuple[int, float], ...]:
        return tuple((size, stopwatch.median_us(functools.partial(copy, size))) for size in sizes)

    return DeviceTimes(
        to_device=line(to_device),
        from_device=line(from_device),
        within=line(within, wide),
        graphs=_graphs(device, stopwatch, lambda: to_device(sizes[0]), lambda: within(_FEW_BYTES)),
        wait_us=_wait_us(device, clock_ns),
        cache_bytes=device.cache_bytes,
    )


class _Stopwatch:
    """Times work enqueued on an idle stream, by the stream's own events."""

    def __init__(self, device: DeviceStream) -> None:
        self._device = device
        self._before, self._after = device.event(), device.event()

    def median_us(self, enqueue: Callable[[], None]) -> float:
        samples = [self._once(enqueue) for _ in range(_WARMUP_RUNS + _RUNS)]
        return statistics.median(samples[_WARMUP_RUNS:])

    def _once(self, enqueue: Callable[[], None]) -> float:
        self._before.record()
        enqueue()
        self._after.record()
        self._device.synchronise()
        return self._after.elapsed_us(self._before)


def _graphs(
    device: DeviceStream, stopwatch: _Stopwatch, copy: Callable[[], None], operation: Callable[[], None]
) -> tuple[tuple[int, float], ...]:
    """Time graphs of increasing size, each launched right behind a copy to the device, as in plans.

    The time beyond the copy and the operations is the cost of starting a captured stretch. The host launches while
    the copy is under way, so this is less than a separate launch, and may be zero.
    """

    def behind_a_copy(count: int) -> Callable[[], None]:
        def many() -> None:
            for _ in range(count):
                operation()

        graph = device.capture(many)

        def enqueue() -> None:
            copy()
            graph.launch()

        return enqueue

    try:
        return tuple((count, stopwatch.median_us(behind_a_copy(count))) for count in GRAPH_SIZES)
    except Exception as error:
        if is_lost(error):
            raise
        return ()  # a device without graphs: plans launch kernels one by one there


def _wait_us(device: DeviceStream, clock_ns: Callable[[], int]) -> float:
    point: Event = device.event()
    samples = []
    for _ in range(_WARMUP_RUNS + _RUNS):
        device.synchronise()
        began = clock_ns()
        point.record()
        device.synchronise()
        samples.append((clock_ns() - began) / 1e3)
    return statistics.median(samples[_WARMUP_RUNS:])
