"""Core's clock for device calls: timed by device events, over a graph of many calls or one call after the other."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence

from collage.devices.opening import is_lost
from collage_core.contract import BoundCall, DeviceStream, Event, Measurement, Protocol, uncollected

_MOST_CALLS = 1000
_CAPTURES = 4
_LAUNCHES_IN_A_ROW = 8
_ROW_US = 2000.0
"""Graph duration above which graphs are launched one by one: a launch then takes less than a hundredth of it."""


@uncollected()
def time_on_device(
    device: DeviceStream,
    calls: Sequence[BoundCall],
    protocol: Protocol,
    *,
    graph: bool,
    why_not: str = "",
    clock_ns: Callable[[], int] = time.perf_counter_ns,
) -> Measurement:
    """Time a call that enqueues work, launched as a plan launches it.

    As a graph, a sample is one launch of a graph of as many calls as take `protocol.min_sample_us`. The gap between
    two kernels of a captured stretch is included. The host's launch time is not: a plan pays it once per stretch,
    and the search counts it there. Graphs are therefore launched in rows, each while the previous one still runs.

    Otherwise, or if the call cannot be captured, the calls are enqueued one by one: a kernel shorter than its own
    launch then costs that launch, as it does in a plan.

    Args:
        device: Stream on which the call enqueues.
        calls: The call, and others of the same kernel on other copies of its weights, which are read in turn; they
            have no lasting effects, so that they can be repeated.
        protocol: Durations and numbers of runs.
        graph: Whether its target requests a graph.
        why_not: Why a plan would not capture it nevertheless; empty if it would.
        clock_ns: A monotonic clock, in nanoseconds, that decides when to stop.

    Raises:
        DeviceError: If the device fails.
    """
    stopwatch = _Stopwatch(device)
    runs, fastest = 0, math.inf
    turn = itertools.cycle(calls)
    end = clock_ns() + round(protocol.warmup_s * 1e9)
    while runs < max(protocol.warmup_runs, len(calls)) or clock_ns() < end:
        fastest = min(fastest, *stopwatch.row_us([next(turn)]))
        runs += 1

    def calls_within(call_us: float) -> int:
        """Compute the number of calls per sample, a multiple of the number of weight copies."""
        count = min(_MOST_CALLS, max(1, math.ceil(protocol.min_sample_us / max(call_us, 1e-2))))
        return -(-count // len(calls)) * len(calls)

    def many() -> None:
        for call in itertools.islice(itertools.cycle(calls), count):
            call()

    count = calls_within(fastest)
    enqueue, in_a_row, reason = many, 1, why_not
    if graph and not why_not:
        try:
            for more in reversed(range(_CAPTURES)):
                enqueue = device.capture(many).launch
                us = stopwatch.graph_us(enqueue)
                if not more or us >= 0.9 * protocol.min_sample_us or count >= _MOST_CALLS:
                    break
                # by itself a call took what its launch did, so there were too few; and this may still be a launch
                count = calls_within(min(us / count, protocol.min_sample_us / (4 * count)))
            in_a_row = _LAUNCHES_IN_A_ROW if us < _ROW_US else 1
        except Exception as error:  # as a plan does, see runtime/launching.py
            if is_lost(error):
                raise
            enqueue, reason = many, f"it could not be captured: {' '.join(str(error).split())}"
    samples: list[float] = []
    end = clock_ns() + round(protocol.duration_s * 1e9)
    while True:
        left = min(in_a_row, protocol.max_samples - len(samples))
        row = stopwatch.row_us([enqueue] * left, primed=in_a_row > 1)
        samples += [us / count for us in row]
        if len(samples) >= protocol.max_samples or (len(samples) >= protocol.min_samples and clock_ns() >= end):
            return Measurement(
                samples_us=tuple(samples),
                warmup_runs=runs,
                calls_per_sample=count,
                launch="eager" if enqueue is many else "graph",
                launch_reason=reason,
                weight_copies=len(calls),
            )


class _Stopwatch:
    """Times enqueued work by the device's own events."""

    def __init__(self, device: DeviceStream) -> None:
        self._device = device
        self._marks: list[Event] = [device.event() for _ in range(_LAUNCHES_IN_A_ROW + 1)]

    def graph_us(self, launch: BoundCall) -> float:
        """Time a graph right behind its own first launch, which also uploads it to the device."""
        [us] = self.row_us([launch], primed=True)
        return us

    def row_us(self, row: Sequence[BoundCall], *, primed: bool = False) -> list[float]:
        """Time each call of a row, from the end of the previous one, in microseconds.

        Args:
            row: The calls.
            primed: Whether one extra call precedes them, so that the device is busy while the first is launched.
        """
        if primed:
            row[0]()
        self._marks[0].record()
        for mark, call in zip(self._marks[1:], row, strict=False):
            call()
            mark.record()
        self._device.synchronise()
        return [later.elapsed_us(earlier) for earlier, later in itertools.pairwise(self._marks[: len(row) + 1])]
