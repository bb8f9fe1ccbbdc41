"""What a plan has to keep to: an error, and what a metric bears, which is learned."""

from __future__ import annotations

import dataclasses
from typing import Any, cast

import pytest

from collage.precision.plans.bound import MARGIN, Bound
from collage.precision.plans.drops import Drops
from collage_core.candidates.plan import Plan


@dataclasses.dataclass(frozen=True)
class GivenPlan:
    """A plan of which only the error is known."""

    error: float
    name: str = "plan"
    kernels: tuple[()] = ()


class GivenDrops:
    """Drops that follow from the error."""

    def __init__(self, most: float, bears: float) -> None:
        self.metric = type("Metric", (), {"max_drop": most, "name": "f1"})
        self._bears = bears
        self.asked = 0

    def drop(self, plan: Any, *, held_out: bool) -> float:
        """Return all that is allowed for what is borne, and more for the rest."""
        assert not held_out
        self.asked += 1
        return float(MARGIN * self.metric.max_drop if plan.error <= self._bears else 2 * self.metric.max_drop)  # type: ignore[attr-defined]


def bound(drops: GivenDrops, allowed: float = 1.0) -> Bound:
    return Bound(allowed, cast(Drops, drops))


def keeps(of: Bound, error: float) -> bool:
    return of.keeps(cast(Plan, GivenPlan(error)), error)


def test_without_a_metric_the_error_decides() -> None:
    plain = Bound(0.1)

    assert keeps(plain, MARGIN * 0.1)
    assert not keeps(plain, 0.0851)
    assert plain.error == MARGIN * 0.1


@pytest.mark.parametrize("bears", [0.3, 0.04, 0.007])
def test_the_error_that_a_metric_bears_is_approached(bears: float) -> None:
    drops = GivenDrops(0.5, bears)
    learning = bound(drops)
    error, kept = learning.error, []
    for _ in range(16):
        if keeps(learning, error):
            kept.append(error)
        error = learning.error

    assert max(kept) <= bears
    assert max(kept) > 0.9 * bears
    assert len(learning.refused) == 16 - len(kept)
    assert all("plan with 0 products in int8 drops by 1 in f1" in said for said in learning.refused)


def test_what_exceeds_the_error_is_not_asked_about() -> None:
    drops = GivenDrops(0.5, bears=1.0)

    assert not keeps(bound(drops, allowed=0.1), 0.09)
    assert not drops.asked


def test_nothing_is_learned_while_no_plan_drops_too_far() -> None:
    learning = bound(GivenDrops(0.5, bears=1.0))

    assert keeps(learning, 0.01)
    assert learning.error == MARGIN
