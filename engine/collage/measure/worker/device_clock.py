"""Core's clock for calls of a device: its own, by events, over a graph of many calls or one call after the other."""

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
"""Graphs that take longer are launched one by one: what a launch takes is less than a hundredth of them."""


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
    """Times a call that enqueues, launched as a plan launches it.

    As a graph, a sample is one launch of a graph of as many calls as take `protocol.min_sample_us`. What stands between
    two kernels of a captured stretch is in it. What launching takes the host is not: a plan pays that once for a
    stretch, and the search counts it there. So graphs are launched in rows, each while the one before still runs.

    Otherwise, or where it cannot be captured, the calls are enqueued one by one: a kernel shorter than its own launch
    then costs that, as it does in a plan.

    Args:
        device: Where it enqueues.
        calls: The call, and others of the same kernel on other copies of its weights, which are read in turn; none
            leaves anything behind, so that it can be repeated.
        protocol: How long and how often.
        graph: Whether its target asks for a graph.
        why_not: Why a plan would not capture it nevertheless; empty if it would.
        clock_ns: A monotonic clock, which says when to stop.

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
        """How many calls make up a sample, each copy of the weights as often as the others."""
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
    """Times what is enqueued by the device's own events."""

    def __init__(self, device: DeviceStream) -> None:
        self._device = device
        self._marks: list[Event] = [device.event() for _ in range(_LAUNCHES_IN_A_ROW + 1)]

    def graph_us(self, launch: BoundCall) -> float:
        """How long a graph takes behind its own first launch, which also sends it to the device."""
        [us] = self.row_us([launch], primed=True)
        return us

    def row_us(self, row: Sequence[BoundCall], *, primed: bool = False) -> list[float]:
        """How long each of a row of calls takes, from the end of the one before.

        Args:
            row: The calls.
            primed: Whether one more is made before them, so that the device is busy while the first is launched.
        """
        if primed:
            row[0]()
        self._marks[0].record()
        for mark, call in zip(self._marks[1:], row, strict=False):
            call()
            mark.record()
        self._device.synchronise()
        return [later.elapsed_us(earlier) for earlier, later in itertools.pairwise(self._marks[: len(row) + 1])]
