"""The time of a whole run: what each step gets of it."""

from __future__ import annotations

import math
import signal
import time

import pytest

from collage.errors import BudgetError
from collage.measure import budget as module
from collage.measure.budget import UNLIMITED, Budget
from collage.options import OptimizeOptions
from collage.setup.settings import measure_settings
from collage_core.errors import DeadlineExceededError
from collage_core.plugin_calls import time_limit


def at(now: float, seconds: float = 20.0) -> Budget:
    """Return a budget that began at 0, at some moment."""
    return Budget(seconds=seconds, ends=seconds, clock=lambda: now)


@pytest.mark.parametrize(("now", "deadline_s"), [(0.0, 20.0), (12.0, 8.0), (17.0, 5.0), (100.0, 5.0)])
def test_a_step_gets_what_is_left_and_the_least_it_needs(now: float, deadline_s: float) -> None:
    assert at(now).within(600.0, least_s=5.0) == deadline_s


def test_a_step_gets_no_more_than_without_a_budget() -> None:
    assert at(0.0).within(3.0, least_s=5.0) == 3.0
    assert UNLIMITED.within(3.0, least_s=5.0) == 3.0


def test_a_part_ends_before_the_whole() -> None:
    part = at(13.0).part(0.6)

    assert part.is_spent
    assert not at(13.0).is_spent
    assert part.left_s == 0.0
    assert UNLIMITED.part(0.6).left_s == math.inf


def test_without_a_budget_nothing_is_interrupted() -> None:
    with UNLIMITED.enforced("the run"):
        pass


@pytest.mark.guards(
    "a run goes on for long after its budget is spent",
    "it is interrupted; one message, and what was measured is kept",
    area="input",
)
def test_what_outlasts_the_budget_is_interrupted_within_other_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_GRACE_S", 0.05)
    monkeypatch.setattr(module, "_LEAST_S", 0.01)

    said = pytest.raises(BudgetError, match=r"the run did not finish within its budget of 0\.01 s\. Wait\.")
    with said, Budget.begin(0.01).enforced("the run", "Wait."), time_limit(3600, "a rule"):
        time.sleep(3600)


def test_a_run_that_is_started_again_has_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_GRACE_S", 0.05)
    budget = Budget.begin(30.0, began=time.monotonic() - 40.0)

    assert budget.left_s == 0.0
    with pytest.raises(BudgetError, match="within its budget of 30 s"), budget.enforced("the run"):
        time.sleep(3600)


@pytest.mark.parametrize(("began", "again"), [(7.0, False), (8.0, True)])
def test_steps_are_repeated_if_what_is_left_is_as_long_as_they_took(began: float, again: bool) -> None:
    assert at(14.0).allows_again(began) is again
    assert UNLIMITED.allows_again(0.0)


def test_a_budget_can_leave_time_for_other_steps() -> None:
    assert at(14.0).but(4.0).left_s == 2.0
    assert at(14.0).but(7.0).is_spent


def test_a_deadline_inside_is_told_as_what_it_is() -> None:
    with pytest.raises(DeadlineExceededError, match="a rule"), Budget.begin(3600.0).enforced("the run"):
        raise DeadlineExceededError("a rule", 1.0)


@pytest.mark.parametrize(("budget_s", "deadline_s"), [(None, 60.0), (20.0, 8.0), (1.0, 5.0), (1000.0, 60.0)])
def test_a_candidate_gets_a_share_of_the_budget(budget_s: float | None, deadline_s: float) -> None:
    options = OptimizeOptions(preset="quick", budget_s=budget_s)

    assert measure_settings(options, threads=1).deadline_s == deadline_s


@pytest.mark.parametrize(("finishing_s", "least_s"), [(3600.0, 3000.0), (1.0, 50.0)])
def test_the_last_steps_have_some_seconds_at_least(
    finishing_s: float, least_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_FINISHING_S", finishing_s)

    with Budget.begin(60.0).enforced("the run") as finishing:
        before, _ = signal.getitimer(signal.ITIMER_REAL)
        finishing()
        left, again = signal.getitimer(signal.ITIMER_REAL)

    assert least_s < left <= max(before, finishing_s)
    assert again == module._AGAIN_S


def test_within_another_limit_nothing_is_put_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FINISHING_S", 3600.0)

    with Budget.begin(60.0).enforced("the run") as finishing, time_limit(30.0, "a rule"):
        finishing()
        left, _ = signal.getitimer(signal.ITIMER_REAL)

    assert left <= 30.0
