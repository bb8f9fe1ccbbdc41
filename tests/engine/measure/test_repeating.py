"""Turns in which others had the processors are taken again, as long as that may help."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collage.measure.clocks.load_wait import LASTING, LoadWait
from collage.measure.clocks.processor_time import OTHERS_MAY
from collage.measure.contenders.repeating import Repeating
from collage.measure.wire.messages import Burst
from collage.measure.wire.outcomes import Failed, Stage

CRASH = Failed(stage=Stage.RUN, reason="crash: signal 11")
MOST_S = 5.0
LOOKS_S = 0.2
"""What the first look takes."""


class Machine:
    """A machine of two processors, and turns that take half a second each by default.

    Args:
        others_had: Processors that others had in each turn, by its number and the time when it begins.
        others_have: Processors that others have while nothing is timed, by the time.
        turn_s: Seconds of a turn.
    """

    def __init__(
        self,
        others_had: Callable[[int, float], float | Failed],
        others_have: Callable[[float], float] = lambda _: 0.0,
        turn_s: float = 0.5,
    ) -> None:
        self._others_had = others_had
        self._others_have = others_have
        self._turn_s = turn_s
        self._ran_s = 0.0
        self.now_s = 0.0
        self.turns = 0

    def sleep(self, seconds: float) -> None:
        self._ran_s += seconds * self._others_have(self.now_s)
        self.now_s += seconds

    def turn(self) -> Burst | Failed:
        found = self._others_had(self.turns, self.now_s)
        self.turns += 1
        self.now_s += self._turn_s
        return found if isinstance(found, Failed) else Burst(samples_us=(float(self.turns),), others_had=found)

    def repeating(
        self, told: list[str] | None = None, *, limit_s: float = 1e9, no_time: bool = False, most_s: float = MOST_S
    ) -> Repeating:
        wait = LoadWait(
            2,
            most_s,
            count=2,
            others_ran_ns=lambda: round(self._ran_s * 1e9),
            clock=lambda: self.now_s,
            sleep=self.sleep,
        )
        tell = (lambda _: None) if told is None else told.append
        return Repeating(wait, limit_s, tell, no_time=lambda: no_time, clock=lambda: self.now_s)


def scripted(had: Sequence[float | Failed]) -> Machine:
    return Machine(lambda turn, _: had[turn])


def taken(answer: Burst | Failed) -> float:
    """The number of the turn that was returned, from 1 on."""
    assert isinstance(answer, Burst)
    return answer.samples_us[0]


def test_an_undisturbed_turn_is_taken_once() -> None:
    machine = scripted([OTHERS_MAY - 0.01])
    repeating = machine.repeating()

    assert taken(repeating(machine.turn)) == 1
    assert repeating.spent_s == 0


def test_a_disturbed_turn_is_taken_again_when_the_load_is_gone() -> None:
    machine = Machine(lambda _, now_s: float(now_s < 3.0), lambda now_s: float(now_s < 3.0))
    repeating = machine.repeating()

    assert taken(repeating(machine.turn)) == 2
    assert repeating.spent_s == pytest.approx(machine.now_s - 0.5)
    assert 3.0 + 0.5 <= machine.now_s < 3.0 + 0.5 + 2 * LOOKS_S


def test_where_there_is_no_load_it_is_taken_again_once() -> None:
    machine = Machine(lambda *_: 1.0)

    assert taken(machine.repeating()(machine.turn)) == 2


def test_the_last_counts_not_the_least_disturbed() -> None:
    machine = scripted([0.6, 0.9])

    assert taken(machine.repeating()(machine.turn)) == 2


def test_a_turn_beside_a_load_that_stays_counts() -> None:
    machine = Machine(lambda *_: 1.0, lambda _: 1.0)
    repeating = machine.repeating()

    assert taken(repeating(machine.turn)) == 1
    assert repeating.spent_s == pytest.approx(MOST_S, abs=LOOKS_S)


def test_a_turn_that_lasts_longer_than_loads_do_is_not_taken_again() -> None:
    machine = Machine(lambda *_: 1.0, turn_s=MOST_S + 1)

    assert taken(machine.repeating()(machine.turn)) == 1


def test_nothing_is_taken_again_where_nothing_is_waited_for() -> None:
    machine = Machine(lambda *_: 1.0)

    assert taken(machine.repeating(most_s=0.0)(machine.turn)) == 1
    assert machine.now_s == 0.5


def test_all_that_is_taken_again_has_a_limit() -> None:
    machine = Machine(lambda turn, _: float(turn % 2 == 0))  # each is undisturbed in the end
    repeating = machine.repeating(limit_s=20.0)

    for _ in range(100):
        repeating(machine.turn)

    assert 20.0 <= repeating.spent_s < 20.0 + 0.5 + 2 * LOOKS_S


@pytest.mark.parametrize("at", [0, 1])
def test_a_failure_ends_it(at: int) -> None:
    machine = scripted([*[1.0] * at, CRASH])

    assert machine.repeating()(machine.turn) is CRASH
    assert machine.turns == at + 1


def test_nothing_is_taken_again_when_there_is_no_time() -> None:
    machine = scripted([1.0])

    assert taken(machine.repeating(no_time=True)(machine.turn)) == 1


def test_a_lasting_load_is_told_once_and_not_waited_for() -> None:
    machine = Machine(lambda *_: 1.0, lambda _: 1.0)
    told: list[str] = []
    repeating = machine.repeating(told)

    for _ in range(LASTING):
        assert not told
        repeating(machine.turn)
    waited_s = repeating.spent_s
    for _ in range(10):
        assert isinstance(repeating(machine.turn), Burst)

    assert machine.turns == LASTING + 10
    assert len(told) == 1
    assert repeating.spent_s <= waited_s + 10 * LOOKS_S + 1e-9


@given(st.floats(0.1, 4.0), st.floats(3.0, 9.0), st.floats(0.0, 9.0))
def test_no_turn_is_disturbed_by_a_load_that_comes_and_goes(on_s: float, off_s: float, first_s: float) -> None:
    def is_on(now_s: float) -> bool:
        return (now_s + first_s) % (on_s + off_s) < on_s

    def others_had(_: int, now_s: float) -> float:
        began, ended = ((now_s + first_s + within) % (on_s + off_s) for within in (0.0, 0.5))
        return 1.0 if began < on_s or ended < began else 0.0  # it began beside the load, or the load came

    machine = Machine(others_had, lambda now_s: float(is_on(now_s)))
    repeating = machine.repeating()
    answers: Iterator[Burst | Failed] = (repeating(machine.turn) for _ in itertools.count())
    found = [answer for answer in itertools.islice(answers, 30) if isinstance(answer, Burst)]

    assert [answer.others_had for answer in found] == [0.0] * 30
