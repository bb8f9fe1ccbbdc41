from __future__ import annotations

import gc
import math
from collections.abc import Callable

from collage.measure.clocks.clock import time_call
from collage.measure.clocks.disturbance import Observer
from collage.measure.clocks.load_wait import LASTING, LOOK_S, RARELY, LoadWait
from collage.measure.clocks.processor_time import ProcessorTime
from collage_core.contract import Block, Protocol


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


def beside(calibrate: Callable[[], float]) -> Observer:
    """On a machine that nobody else uses."""
    return Observer(calibrate, processor=lambda: None)


class Calibrations:
    """What the calibration kernel takes, one time after another; the last goes on."""

    def __init__(self, *times_us: float) -> None:
        self._times_us = times_us
        self.calls = 0

    def __call__(self) -> float:
        self.calls += 1
        return self._times_us[min(self.calls, len(self._times_us)) - 1]


def test_each_block_has_what_the_calibration_kernel_took_around_it() -> None:
    clock = Clock(1000.0)

    measurement = time_call(
        clock.call, protocol(min_samples=4, blocks=2), clock, observe=beside(Calibrations(100.0, 108.0, 100.0))
    )

    assert measurement.blocks == (Block(samples=2, calibration_us=104.0), Block(samples=2, calibration_us=104.0))
    assert len(measurement.samples_us) == 4


def test_a_block_during_which_the_speed_changed_is_taken_again() -> None:
    """The second of three blocks begins at full speed and ends at half of it."""
    clock = Clock(1.0, 1.0, 10.0, 20.0, 30.0, 40.0)
    calibrate = Calibrations(100.0, 100.0, 200.0, 100.0, 100.0, 100.0)

    measurement = time_call(clock.call, protocol(min_sample_us=1, blocks=3), clock, observe=beside(calibrate))

    assert measurement.samples_us == (10.0, 40.0, 40.0)
    assert [block.calibration_us for block in measurement.blocks] == [100.0, 100.0, 100.0]


def test_a_block_at_another_speed_than_usual_is_taken_again() -> None:
    """The machine is slow during the second of three blocks from end to end."""
    clock = Clock(1.0, 1.0, 10.0, 20.0, 30.0, 40.0, 50.0)
    calibrate = Calibrations(100.0, 100.0, 200.0, 200.0, 100.0, 100.0, 100.0)
    observe = beside(calibrate)

    measurement = time_call(clock.call, protocol(min_sample_us=1, blocks=2, min_samples=2), clock, observe=observe)

    assert measurement.samples_us == (10.0, 50.0)
    assert [block.calibration_us for block in measurement.blocks] == [100.0, 100.0]


def test_a_machine_that_never_rests_is_measured_all_the_same() -> None:
    """Three times as many blocks are taken as are wanted, and the least disturbed of them kept."""
    clock = Clock(1.0, 1.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0)
    calibrate = Calibrations(100.0, 200.0, 300.0, 100.0, 120.0, 240.0, 480.0)

    measurement = time_call(
        clock.call, protocol(min_sample_us=1, blocks=2, min_samples=2), clock, observe=beside(calibrate)
    )

    assert calibrate.calls == 7
    assert measurement.samples_us == (10.0, 40.0)
    assert [block.calibration_us for block in measurement.blocks] == [150.0, 110.0]


def test_on_a_machine_that_never_rests_a_long_call_is_not_repeated_for_long() -> None:
    """Each block is one call of two seconds; a kernel has a deadline."""
    clock = Clock(2e6)

    measurement = time_call(
        clock.call,
        protocol(warmup_runs=1, min_samples=2, blocks=2),
        clock,
        observe=beside(Calibrations(100.0, 200.0, 400.0, 800.0, 1600.0)),
    )

    assert measurement.samples_us == (2e6, 2e6)
    assert clock.calls == 1 + 3  # a third block began before five seconds were over


def test_what_takes_little_of_a_block_runs_once_untimed_after_each_calibration() -> None:
    short, long = Clock(100.0), Clock(900.0)

    for clock in (short, long):  # blocks of 10 ms, of which a twentieth is 500 us
        time_call(
            clock.call,
            protocol(min_sample_us=1, blocks=2, max_samples=2, duration_s=0.02),
            clock,
            observe=beside(lambda: 1.0),
        )

    assert (short.calls, long.calls) == (2 + 2 + 2, 2 + 2)  # warm-up, samples, untimed


def test_there_are_never_more_blocks_than_samples() -> None:
    clock = Clock(1000.0)

    measurement = time_call(clock.call, protocol(min_samples=1, max_samples=1), clock, observe=beside(lambda: 1.0))

    assert measurement.samples_us == (1000.0,)
    assert len(measurement.blocks) == 1


def test_what_runs_between_samples_is_not_timed_and_a_sample_is_one_call() -> None:
    clock = Clock(10.0)
    done: list[int] = []

    def between() -> None:
        done.append(clock.calls)
        clock.now_ns += 5_000_000

    measurement = time_call(
        clock.call, protocol(min_samples=4, blocks=2), clock, observe=beside(lambda: 1.0), between=between
    )

    assert measurement.samples_us == (10.0,) * 4
    assert measurement.calls_per_sample == 1
    assert done == [2, 3, 4, 5]  # after the two calls that warm up, before each that is timed; none is untimed besides


def test_time_between_samples_counts_where_they_end() -> None:
    clock = Clock(10.0)

    def between() -> None:
        clock.now_ns += 990_000

    assert len(time_call(clock.call, protocol(duration_s=0.01), clock, between=between).samples_us) == 10


class Shared:
    """A machine of two processors beside a load, on which a call takes a tenth of a second of both.

    Args:
        is_busy: Whether the load has a processor, by the time in seconds; it makes calls take twice as long.
        own_waits: Whether threads of the call wait for each other all the time.
    """

    def __init__(self, is_busy: Callable[[float], bool], *, own_waits: bool = False) -> None:
        self._is_busy = is_busy
        self._own_waits = own_waits
        self._waited_ns = 0
        self._ran_ns = 0
        self._others_ran_ns = 0
        self.now_ns = 0
        self.calls = 0
        self._wait = LoadWait(
            2,
            5.0,
            count=2,
            others_ran_ns=lambda: self._others_ran_ns,
            clock=lambda: self.now_ns / 1e9,
            sleep=self._sleep,
        )
        self._observe = Observer(lambda: 100.0, processor=self._processor, count=2, clock_ns=self.clock_ns)

    def clock_ns(self) -> int:
        return self.now_ns

    def call(self) -> None:
        busy = self._is_busy(self.now_ns / 1e9)
        took_ns = 200_000_000 if busy else 100_000_000
        self.calls += 1
        self.now_ns += took_ns
        self._ran_ns += took_ns if busy or self._own_waits else 2 * took_ns
        self._waited_ns += took_ns if busy or self._own_waits else 0

    def samples_us(self, *, waiting: bool = True) -> tuple[float, ...]:
        wanted = protocol(warmup_runs=1, min_samples=2, blocks=2)
        wait = self._wait if waiting else None
        return time_call(self.call, wanted, self.clock_ns, observe=self._observe, wait=wait).samples_us

    def _processor(self) -> ProcessorTime:
        return ProcessorTime(running_ns=1 + self._ran_ns, waiting_ns=self._waited_ns)

    def _sleep(self, seconds: float) -> None:
        busy = self._is_busy(self.now_ns / 1e9)
        self.now_ns += round(seconds * 1e9)
        self._others_ran_ns += round(seconds * 1e9) if busy else 0


def test_a_load_of_seconds_is_waited_for() -> None:
    shared = Shared(lambda now_s: now_s < 3.0)

    assert shared.samples_us() == (1e5, 1e5)
    assert shared.calls < 2 + 5


def test_nothing_is_waited_for_unless_asked() -> None:
    shared = Shared(lambda now_s: now_s < 3.0)

    assert shared.samples_us(waiting=False) == (2e5, 2e5)


def test_a_load_that_comes_and_goes_disturbs_nothing() -> None:
    shared = Shared(lambda now_s: now_s % 6 < 3)

    assert [shared.samples_us() for _ in range(50)] == [(1e5, 1e5)] * 50


def test_beside_a_lasting_load_blocks_are_taken_as_they_are() -> None:
    shared = Shared(lambda _: True)

    def seconds() -> float:
        began_ns = shared.now_ns
        assert shared.samples_us() == (2e5, 2e5)
        return (shared.now_ns - began_ns) / 1e9

    took = [seconds() for _ in range(LASTING + 3)]

    assert min(took[:LASTING]) > 5.0 > 2.5 > max(took[LASTING:])


def test_what_waits_for_itself_is_hardly_looked_at() -> None:
    shared = Shared(lambda _: False, own_waits=True)

    assert shared.samples_us() == (1e5, 1e5)
    looked_s = shared.now_ns / 1e9 - 0.1 * shared.calls
    assert 0 < looked_s <= 2 * LOOK_S * math.ceil(shared.now_ns / 1e9 / (RARELY * LOOK_S))
