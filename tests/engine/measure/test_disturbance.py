"""When the machine was not itself, by figures made up, and beside a real process that takes a processor."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from collage.measure.clocks.disturbance import DISTURBED, Moment, Observer
from collage.measure.clocks.processor_time import ProcessorTime, processor_time, processors

PASSED_NS = 1_000_000
"""Between two looks."""


def observer(
    *calibrations_us: float, had: Callable[[], ProcessorTime | None] = lambda: None, count: int = 2
) -> Observer:
    times = itertools.chain(calibrations_us, itertools.repeat(calibrations_us[-1]))
    ticks = itertools.count(step=PASSED_NS)
    return Observer(lambda: next(times), processor=had, count=count, clock_ns=lambda: next(ticks))


def seen(observe: Observer, blocks: int) -> list[float]:
    found, before = [], observe()
    for _ in range(blocks):
        after = observe()
        found.append(observe.disturbance(before, after))
        before = after
    return found


def test_a_steady_machine_is_not_disturbed() -> None:
    assert seen(observer(50.0, 52.0, 51.0), 2) == [pytest.approx(1.04), pytest.approx(1.03)]


def test_a_change_disturbs_whichever_way_it_goes() -> None:
    assert seen(observer(50.0, 75.0, 50.0), 2) == [1.5, 1.5]


def test_being_slower_than_usual_disturbs_and_being_faster_does_not() -> None:
    slower = observer(*[50.0] * 8, 100.0)
    faster = observer(*[50.0] * 8, 25.0)

    assert seen(slower, 9)[-1] == 2.0
    assert seen(faster, 9)[-1] == 1.0


def test_what_stays_slower_becomes_usual() -> None:
    observe = observer(*[50.0] * 100, 100.0)

    blocks = seen(observe, 1500)

    assert blocks[200] == 2.0
    assert blocks[-1] == 1.0


def had(running: float, waiting: float) -> Callable[[], ProcessorTime]:
    """Each time, this many processors more."""

    def times() -> Iterator[ProcessorTime]:
        for at in itertools.count():
            running_ns, waiting_ns = round(at * running * PASSED_NS), round(at * waiting * PASSED_NS)
            yield ProcessorTime(running_ns=running_ns, waiting_ns=waiting_ns)

    each = times()
    return lambda: next(each)


@pytest.mark.parametrize(
    ("running", "waiting", "count", "disturbed"),
    [
        (1.7, 0.0, 2, False),  # nobody had to wait
        (1.0, 1.6, 2, True),  # another process had a processor
        (1.9, 0.7, 2, False),  # its own threads waited for each other
        (1.9, 0.7, 8, True),  # they had no need to
        (1.5, 0.6, 2, True),
    ],
)
def test_others_disturb_by_what_they_had_of_the_processors(
    running: float, waiting: float, count: int, *, disturbed: bool
) -> None:
    (found,) = seen(observer(50.0, had=had(running, waiting), count=count), 1)

    assert (found >= DISTURBED) is disturbed


def test_where_the_system_says_nothing_calibrations_decide() -> None:
    observe = observer(50.0)
    nothing = Moment(calibration_us=50.0, at_ns=0, processor=None)
    something = Moment(calibration_us=50.0, at_ns=1, processor=ProcessorTime(running_ns=1, waiting_ns=9))
    observe()

    assert observe.disturbance(nothing, something) == 1.0


@pytest.mark.skipif(processor_time() is None, reason="the system does not say who had the processors")
def test_a_process_that_shares_the_only_processor_is_seen() -> None:
    """Both are bound to one processor, where this one gets about half of it."""
    script = f"""
import os, subprocess, sys, time
sys.path[:0] = {sys.path!r}
from collage.measure.clocks.disturbance import DISTURBED, Observer
os.sched_setaffinity(0, {{min(os.sched_getaffinity(0))}})
observe = Observer(lambda: 1.0)
def look():
    before = observe()
    end = time.process_time() + 0.2  # of a processor, however long that takes
    while time.process_time() < end:
        pass
    return observe.disturbance(before, observe())
burner = subprocess.Popen([sys.executable, "-c", "while True: pass"])
try:
    while not (found := look()) >= DISTURBED:  # until the other has started
        pass
finally:
    burner.kill()
print(found)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)

    assert float(done.stdout) >= DISTURBED


@pytest.mark.skipif(processor_time() is None, reason="the system does not say who had the processors")
def test_running_counts_and_sleeping_does_not() -> None:
    first = processor_time()
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass
    second = processor_time()
    assert first is not None
    assert second is not None

    assert second.running_ns - first.running_ns >= 0.09e9
    assert second.waiting_ns >= first.waiting_ns


def test_processors_are_those_it_may_run_on() -> None:
    assert 1 <= processors() <= (os.cpu_count() or 1)
