"""Core's clock: time a bound call when the toolchain brings no clock of its own."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from collage_core.contract import BoundCall, Measurement, Protocol, uncollected


def time_call(call: BoundCall, protocol: Protocol, clock_ns: Callable[[], int] = time.perf_counter_ns) -> Measurement:
    """Time a call by a protocol.

    Args:
        call: Has no lasting effects, so that it can be repeated.
        protocol: Durations and numbers of runs.
        clock_ns: A monotonic clock, in nanoseconds.
    """
    with uncollected():
        warmup_runs, once_us = _warm_up(call, protocol, clock_ns)
        calls = max(1, math.ceil(protocol.min_sample_us / once_us))
        samples: list[float] = []
        end = clock_ns() + round(protocol.duration_s * 1e9)
        while True:
            started = clock_ns()
            for _ in range(calls):
                call()
            now = clock_ns()
            samples.append((now - started) / calls / 1e3)
            if len(samples) >= protocol.max_samples or (len(samples) >= protocol.min_samples and now >= end):
                return Measurement(samples_us=tuple(samples), warmup_runs=warmup_runs, calls_per_sample=calls)


def _warm_up(call: BoundCall, protocol: Protocol, clock_ns: Callable[[], int]) -> tuple[int, float]:
    """Warm up as the protocol requires; return the number of runs and the fastest time in microseconds."""
    runs, fastest = 0, math.inf
    end = clock_ns() + round(protocol.warmup_s * 1e9)
    while True:
        started = clock_ns()
        call()
        now = clock_ns()
        runs += 1
        fastest = min(fastest, (now - started) / 1e3)
        if runs >= protocol.warmup_runs and now >= end:
            return runs, max(fastest, 1e-2)  # a call cannot be faster than the clock ticks
