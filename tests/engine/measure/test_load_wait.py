"""Other load is waited for until it is gone, by figures made up and beside real processes that take the processors."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collage.measure.clocks.load_wait import FORGOTTEN_S, LASTING, LOOK_S, RARELY, Load, LoadWait
from collage.measure.clocks.processor_time import others_ran_ns, processors

SOON_S = 3 * LOOK_S
"""A wait that finds nothing, or finds at its first proper look that the load is gone, is over by then."""


class Machine:
    """A machine of two processors.

    Args:
        others_have: Processors that others have, by the time in seconds.
        threads: Those that are wanted.
        most_s: Seconds to wait at most.
        total_s: All in all.
    """

    def __init__(
        self,
        others_have: Callable[[float], float],
        threads: int = 2,
        *,
        most_s: float = 5.0,
        total_s: float = math.inf,
    ) -> None:
        self._others_have = others_have
        self._ran_s = 0.0
        self.now_s = 0.0
        self.wait = LoadWait(
            threads,
            most_s,
            total_s,
            count=2,
            others_ran_ns=lambda: round(self._ran_s * 1e9),
            clock=lambda: self.now_s,
            sleep=self.sleep,
        )

    def sleep(self, seconds: float) -> None:
        for _ in range(10):
            self._ran_s += seconds / 10 * self._others_have(self.now_s)
            self.now_s += seconds / 10


def test_what_nobody_disturbs_is_looked_at_once() -> None:
    machine = Machine(lambda _: 0.05)

    assert machine.wait() is Load.ABSENT
    assert machine.now_s <= SOON_S


def test_a_load_that_goes_is_waited_for_no_longer_than_it_is_there() -> None:
    machine = Machine(lambda now_s: float(now_s < 3.0))

    assert machine.wait() is Load.GONE
    assert 3.0 <= machine.now_s <= 3.0 + SOON_S


def test_a_load_that_stays_is_given_up_when_time_is_up() -> None:
    machine = Machine(lambda _: 1.0, most_s=2.0)

    assert machine.wait() is Load.STAYING
    assert 2.0 - LOOK_S <= machine.now_s <= 2.0 + LOOK_S


def test_less_time_may_be_left() -> None:
    machine = Machine(lambda _: 1.0)

    assert machine.wait(1.0) is Load.STAYING
    assert machine.now_s <= 1.0 + LOOK_S


def test_a_lasting_load_is_looked_at_once_until_it_is_gone() -> None:
    load = [1.0]
    machine = Machine(lambda _: load[0])

    def waited_s() -> float:
        began_s = machine.now_s
        machine.wait()
        return machine.now_s - began_s

    assert [waited_s() > SOON_S for _ in range(LASTING + 3)] == [True] * LASTING + [False] * 3
    assert machine.wait.is_lasting
    load[0] = 0.0
    machine.wait()
    assert not machine.wait.is_lasting


def test_a_load_that_has_little_time_to_go_is_not_a_lasting_one() -> None:
    machine = Machine(lambda _: 1.0)

    for _ in range(2 * LASTING):
        assert machine.wait(0.5) is Load.STAYING

    assert not machine.wait.is_lasting


@pytest.mark.parametrize(("threads", "load"), [(1, Load.ABSENT), (2, Load.STAYING)])
def test_others_may_have_the_processors_that_are_not_wanted(threads: int, load: Load) -> None:
    assert Machine(lambda _: 1.0, threads).wait() is load


def test_where_the_machine_does_not_say_there_is_no_load() -> None:
    assert LoadWait(2, 5.0, count=2, others_ran_ns=lambda: None, sleep=lambda _: None)() is Load.ABSENT


@given(st.floats(0.0, 4.4), st.floats(1.0, 9.0), st.floats(0.0, 9.0))
def test_a_load_that_comes_and_goes_is_outlasted(on_s: float, off_s: float, first_s: float) -> None:
    machine = Machine(lambda now_s: float((now_s + first_s) % (on_s + off_s) < on_s))

    for _ in range(20):
        machine.now_s += RARELY * LOOK_S
        assert machine.wait() is not Load.STAYING


def test_after_a_look_that_found_nothing_there_is_none_for_a_while() -> None:
    load = [0.0]
    machine = Machine(lambda _: load[0])
    machine.wait()
    ended_s = machine.now_s
    load[0] = 1.0

    assert machine.wait() is Load.ABSENT
    assert machine.now_s == ended_s
    machine.now_s += RARELY * LOOK_S
    assert machine.wait() is Load.STAYING


def test_a_load_that_stayed_long_ago_says_nothing() -> None:
    machine = Machine(lambda _: 1.0)
    for _ in range(LASTING):
        machine.wait()
    assert machine.wait.is_lasting

    machine.now_s += FORGOTTEN_S

    assert not machine.wait.is_lasting


def test_waiting_ends_when_all_of_its_seconds_are_spent() -> None:
    machine = Machine(lambda now_s: float(now_s % 4 < 3), total_s=20.0)

    while machine.wait() is not Load.STAYING:
        machine.now_s += 2.0  # something is timed
    ended_s = machine.now_s

    assert 20.0 <= machine.wait.spent_s < 25.0
    assert machine.wait() is Load.STAYING
    assert machine.now_s == ended_s


@pytest.mark.skipif(others_ran_ns() is None, reason="the system does not say what others run")
def test_a_real_load_that_stays_is_seen() -> None:
    burn = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: pass"
    wanted = processors()
    burning = [subprocess.Popen([sys.executable, "-c", burn]) for _ in range(wanted)]
    try:
        time.sleep(0.3)
        assert LoadWait(wanted, 1.0)() is Load.STAYING
    finally:
        for process in burning:
            process.kill()
            process.wait()
