"""Whether leases slow each other: by what fixed work takes alone and beside others."""

from __future__ import annotations

import itertools
import threading

import pytest

from collage.fleet.interference import slowdown
from collage.fleet.jobs import AskInterference, Interference
from collage.serve.interference_work import interference
from collage_core.errors import RunnerError
from tests.engine.fleet.fake_runner import FakeRunner


class Machine:
    """Takes a second for a run alone, and longer beside others: all jobs of a round are on one clock."""

    def __init__(self, beside: float, *, late_s: float = 0.0, runs: int = 20) -> None:
        self._beside = beside
        self._late_s = late_s
        self._runs = runs
        self._lock = threading.Lock()
        self._numbers = itertools.count()

    def __call__(self, host: str, ask: object) -> Interference:
        assert isinstance(ask, AskInterference)
        with self._lock:
            place = next(self._numbers) % 3  # two beside each other, then one alone
        took = 1.0 if place == 2 else self._beside
        began = self._late_s if place == 1 else 0.0
        # of those that begin while the other has not, the first runs are as fast as alone
        times = [1.0 if place == 0 and began + number < self._late_s else took for number in range(self._runs)]
        begins = itertools.accumulate([began, *times[:-1]])
        return Interference(runs=tuple(zip(begins, times, strict=True)))


@pytest.mark.parametrize("beside", [1.0, 1.02, 1.5])
def test_it_is_what_the_work_takes_beside_others_over_alone(beside: float) -> None:
    runner = FakeRunner(["a"], Machine(beside))

    assert slowdown(runner, "fake", ["a", "a"], 1) == pytest.approx(beside)


def test_only_what_ran_while_all_ran_counts() -> None:
    runner = FakeRunner(["a"], Machine(1.5, late_s=9.5))

    assert slowdown(runner, "fake", ["a", "a"], 1) == pytest.approx(1.5)


def test_too_few_runs_say_nothing() -> None:
    assert slowdown(FakeRunner(["a"], Machine(1.0, runs=3)), "fake", ["a", "a"], 1) is None


def test_leases_that_do_not_work_at_once_say_nothing() -> None:
    assert slowdown(FakeRunner(["a"], Machine(1.0, late_s=1000.0)), "fake", ["a", "a"], 1) is None


def test_a_machine_that_answers_something_else_is_an_error() -> None:
    runner = FakeRunner(["a"], lambda host, ask: ask)

    with pytest.raises(RunnerError, match="answered with AskInterference"):
        slowdown(runner, "fake", ["a", "a"], 1)


def test_the_work_says_when_it_ran() -> None:
    found = interference(AskInterference(threads=2, duration_s=0.05))

    assert found.runs
    assert all(took > 0 for _, took in found.runs)
    assert all(began + took <= later for (began, took), (later, _) in itertools.pairwise(found.runs))
