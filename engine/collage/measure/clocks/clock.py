"""Core's clock: time a bound call when the toolchain brings no clock of its own.

Samples are taken in short blocks with the calibration kernel between them, so that each block knows how fast the
machine was beside it. A block that was disturbed is taken again; one in which others had the processors, when they are
gone.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable

from collage.measure.clocks.disturbance import DISTURBED, Moment, Observer
from collage.measure.clocks.load_wait import Load, LoadWait
from collage_core.contract import Block, BoundCall, Measurement, Protocol, uncollected

_ATTEMPTS = 3
"""Blocks taken at most for each that is wanted, besides those after which other load was waited for."""
_REPEATING_S = 5.0
"""Seconds of blocks after which disturbed ones are taken as they are: a kernel has a deadline."""
_REWARMING = 0.05
"""Share of a block that one untimed call may take: the calibration kernel has used the caches."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Sampling:
    """How the samples of one block are taken."""

    calls: int
    least: int
    most: int
    duration_s: float
    between: BoundCall | None


@dataclasses.dataclass(frozen=True, slots=True)
class _Taken:
    samples_us: tuple[float, ...]
    calibration_us: float
    disturbance: float


def time_call(
    call: BoundCall,
    protocol: Protocol,
    clock_ns: Callable[[], int] = time.perf_counter_ns,
    *,
    observe: Observer | None = None,
    between: BoundCall | None = None,
    wait: LoadWait | None = None,
) -> Measurement:
    """Time a call by a protocol.

    Args:
        call: Has no lasting effects, so that it can be repeated.
        protocol: Durations and numbers of runs.
        clock_ns: A monotonic clock, in nanoseconds.
        observe: Looks at the machine before and after each block; without it there are no blocks.
        between: Runs untimed before each sample, which is one call then. Its time counts as the samples' does where
            they end.
        wait: Waits until other load is gone, where others had processors in a block; None for not at all.
    """
    blocks = 1 if observe is None else max(1, min(protocol.blocks, protocol.max_samples))
    with uncollected():
        warmup_runs, once_us = _warm_up(call, protocol, clock_ns)
        each = _Sampling(
            calls=1 if between is not None else max(1, math.ceil(protocol.min_sample_us / once_us)),
            least=math.ceil(protocol.min_samples / blocks),
            most=max(1, protocol.max_samples // blocks),
            duration_s=protocol.duration_s / blocks,
            between=between,
        )
        if observe is None:
            taken = [_Taken(_samples(call, each, clock_ns), math.nan, 1.0)]
        else:
            rewarming = between is None and once_us <= _REWARMING * 1e6 * each.duration_s
            taken = _blocks(call, blocks, each, clock_ns, observe, wait, rewarming=rewarming)
    return Measurement(
        samples_us=tuple(sample for block in taken for sample in block.samples_us),
        warmup_runs=warmup_runs,
        calls_per_sample=each.calls,
        blocks=()
        if observe is None
        else tuple(Block(samples=len(block.samples_us), calibration_us=block.calibration_us) for block in taken),
    )


def _blocks(
    call: BoundCall,
    count: int,
    each: _Sampling,
    clock_ns: Callable[[], int],
    observe: Observer,
    wait: LoadWait | None,
    *,
    rewarming: bool,
) -> list[_Taken]:
    """Return the least disturbed blocks, in the order taken."""
    taken: list[_Taken] = []
    waits = 0
    before, late = observe(), clock_ns() + round(_REPEATING_S * 1e9)
    while len(taken) < count or (
        len(taken) - waits < _ATTEMPTS * count
        and sum(block.disturbance < DISTURBED for block in taken) < count
        and clock_ns() < late
    ):
        if rewarming:
            call()
        samples_us = _samples(call, each, clock_ns)
        after = observe()
        taken.append(_taken(samples_us, before, after, observe))
        left_s = (late - clock_ns()) / 1e9
        if wait is not None and min(left_s, wait.most_s) > 0 and observe.others_had(before, after):
            load = wait(left_s)
            waits += load is Load.GONE
            if load is Load.STAYING:
                wait = None
            call()  # caches are cold now, and threads asleep
            after = observe()
        before = after
    calmest = sorted(range(len(taken)), key=lambda index: taken[index].disturbance)[:count]
    return [taken[index] for index in sorted(calmest)]


def _taken(samples_us: tuple[float, ...], before: Moment, after: Moment, observe: Observer) -> _Taken:
    return _Taken(samples_us, (before.calibration_us + after.calibration_us) / 2, observe.disturbance(before, after))


def _samples(call: BoundCall, each: _Sampling, clock_ns: Callable[[], int]) -> tuple[float, ...]:
    samples: list[float] = []
    end = clock_ns() + round(each.duration_s * 1e9)
    while True:
        if each.between is not None:
            each.between()
        started = clock_ns()
        for _ in range(each.calls):
            call()
        now = clock_ns()
        samples.append((now - started) / each.calls / 1e3)
        if len(samples) >= each.most or (len(samples) >= each.least and now >= end):
            return tuple(samples)


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
