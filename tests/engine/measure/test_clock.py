from __future__ import annotations

import gc
from collections.abc import Callable

from collage.measure.worker.clock import time_call
from collage_core.contract import Protocol


class Clock:
    """Time passes only in calls."""

    def __init__(self, *call_us: float) -> None:
        self.now_ns = 0
        self.calls = 0
        self._call_us = call_us

    def __call__(self) -> int:
        return self.now_ns

    def call(self) -> None:
        self.now_ns += round(self._call_us[min(self.calls, len(self._call_us) - 1)] * 1e3)
        self.calls += 1


def protocol(**changes: float) -> Protocol:
    return Protocol(**({"warmup_runs": 2, "warmup_s": 0, "min_samples": 3, "duration_s": 0} | changes))  # type: ignore[arg-type]


def test_a_slow_call_is_one_sample_each() -> None:
    clock = Clock(1000.0, 900.0, 500.0, 510.0, 490.0)

    measurement = time_call(clock.call, protocol(min_sample_us=200), clock)

    assert measurement.samples_us == (500.0, 510.0, 490.0)
    assert measurement.warmup_runs == 2
    assert measurement.calls_per_sample == 1


def test_a_fast_call_is_repeated_until_a_sample_is_long_enough() -> None:
    clock = Clock(3.0)

    measurement = time_call(clock.call, protocol(min_sample_us=200), clock)

    assert measurement.calls_per_sample == 67
    assert measurement.samples_us == (3.0, 3.0, 3.0)


def test_warming_up_takes_at_least_the_time_asked() -> None:
    clock = Clock(100.0)

    assert time_call(clock.call, protocol(warmup_s=0.01), clock).warmup_runs == 100


def test_samples_go_on_for_the_duration_but_not_beyond_the_maximum() -> None:
    long = Clock(1000.0)
    short = Clock(1000.0)

    assert len(time_call(long.call, protocol(duration_s=0.05), long).samples_us) == 50
    assert len(time_call(short.call, protocol(duration_s=0.05, max_samples=7), short).samples_us) == 7


def test_the_garbage_collector_rests_meanwhile_and_works_afterwards() -> None:
    seen: list[bool] = []
    note: Callable[[], None] = lambda: seen.append(gc.isenabled())  # noqa: E731

    time_call(note, protocol(min_sample_us=1))

    assert not any(seen)
    assert gc.isenabled()
