"""The cheapest plan within a bound on error, against brute force over all partitionings."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collage_core.contract.cost import UNMEASURED, Cost, Unmeasured
from collage_core.errors import NoCoverError
from collage_core.search import SearchCandidate, SearchLimits, SearchProblem, SearchTarget, bounded_search

BLOCK = 150
"""Seeds of a test."""


@dataclasses.dataclass(frozen=True)
class Priced:
    """An instance with an error for each candidate, and a bound."""

    instance: Any
    errors: tuple[float, ...]
    bound: float

    @property
    def costs_us(self) -> list[Cost | Unmeasured]:
        known = self.instance.costs_us
        return [known.get((each.target, each.key), UNMEASURED) for each in self.instance.problem.candidates]

    def error(self, plan: Sequence[SearchCandidate]) -> float:
        first = dict(reversed(list(zip(self.instance.problem.candidates, self.errors, strict=True))))
        return math.fsum(first[each] for each in plan)

    def cost_us(self, plan: Sequence[SearchCandidate]) -> float:
        return math.fsum(self.instance.price_us(each) for each in plan)


def priced(instance: Any, rng: random.Random) -> Priced:
    """An instance in which what is cheap is often wrong by much; equal candidates have equal errors."""
    exact = rng.choice([0.0, 0.3, 0.6])
    known: dict[SearchCandidate, float] = {}
    for candidate in instance.problem.candidates:
        drawn = 0.0 if rng.random() < exact else rng.randint(1, 40) / 8
        known.setdefault(candidate, drawn)
    errors = tuple(known[candidate] for candidate in instance.problem.candidates)
    return Priced(instance, errors, rng.choice([0.0, 2.0, 5.0, 10.0, 20.0]))


def cheapest(given: Priced, plans: Sequence[Sequence[SearchCandidate]]) -> float | None:
    """What the cheapest plan within the bound costs, by trying all."""
    return min((given.cost_us(plan) for plan in plans if given.error(plan) <= given.bound), default=None)


@pytest.mark.parametrize("style", ["uniform", "adversarial"])
@pytest.mark.parametrize("limits", [None, SearchLimits(plain_states=0, widths=(1, 8))], ids=["plain", "pruned"])
def test_the_plan_is_the_cheapest_within_the_bound(
    style: str, limits: SearchLimits | None, draw: Callable[..., Any], plans_of: Callable[..., Any]
) -> None:
    outcomes = {"found": 0, "beyond": 0, "uncovered": 0}
    for seed in range(BLOCK):
        rng = random.Random(seed)
        given = priced(draw(rng, style), rng)
        plans = plans_of(given.instance)
        try:
            found = bounded_search(
                given.instance.problem, given.costs_us, given.errors, given.bound, most_searches=10**9, limits=limits
            )
        except NoCoverError:
            assert plans == []
            outcomes["uncovered"] += 1
            continue
        wanted = cheapest(given, plans)
        if wanted is None:
            assert found is None
            outcomes["beyond"] += 1
            continue
        assert found is not None
        assert found.total_us == pytest.approx(wanted, abs=1e-6), (style, seed)
        assert found.error == given.error(found.candidates) <= given.bound
        assert found.is_exact
        outcomes["found"] += 1
    assert min(outcomes.values()) > 0


@given(seed=st.integers(min_value=10_000), searches=st.integers(1, 12))
@settings(deadline=None, derandomize=True, max_examples=60)
def test_a_search_that_is_cut_short_keeps_to_the_bound_and_says_how_much_cheaper_a_plan_could_be(
    draw: Callable[..., Any], plans_of: Callable[..., Any], seed: int, searches: int
) -> None:
    rng = random.Random(seed)
    given = priced(draw(rng, "uniform"), rng)
    try:
        found = bounded_search(
            given.instance.problem, given.costs_us, given.errors, given.bound, most_searches=searches
        )
    except NoCoverError:
        return
    wanted = cheapest(given, plans_of(given.instance))
    assert (found is None) == (wanted is None)
    if found is not None and wanted is not None:
        assert found.error <= given.bound
        assert found.lower_us - 1e-6 <= wanted <= found.total_us + 1e-6


def a_chain(length: int, seed: int) -> tuple[SearchProblem, list[float], list[float]]:
    """A chain with an exact and a cheaper kernel for each node."""
    rng = random.Random(seed)
    targets = [SearchTarget(name="exact", toolchain="t"), SearchTarget(name="low", toolchain="t")]
    predecessors = [[node - 1] if node else [] for node in range(length)]
    candidates = [
        SearchCandidate(nodes=1 << node, target=target.name, key=f"{target.name}{node}")
        for node in range(length)
        for target in targets
    ]
    costs_us = [each for _ in range(length) for each in (10.0, 10.0 - rng.uniform(1, 8))]
    errors = [each for _ in range(length) for each in (0.0, rng.uniform(0.1, 5))]
    return SearchProblem.from_predecessors(predecessors, targets=targets, candidates=candidates), costs_us, errors


def test_a_long_chain_is_proven_near_the_optimum_in_few_searches() -> None:
    problem, costs_us, errors = a_chain(200, seed=1)

    found = bounded_search(problem, costs_us, errors, 100.0, within=0.01)

    assert found is not None
    assert found.error <= 100.0
    assert found.total_us <= found.lower_us * 1.01
    assert found.searches < 60


def test_a_bound_that_everything_keeps_to_takes_one_search() -> None:
    problem, costs_us, errors = a_chain(20, seed=2)

    found = bounded_search(problem, costs_us, errors, 1e9)

    assert found is not None
    assert (found.searches, found.is_exact) == (1, True)
    assert {each.target for each in found.candidates} == {"low"}


@pytest.mark.parametrize(
    ("errors", "bound"), [([math.nan, 0.0], 1.0), ([-1.0, 0.0], 1.0), ([0.0, 0.0], math.inf), ([0.0], 1.0)]
)
def test_errors_that_are_none_are_refused(errors: list[float], bound: float) -> None:
    problem, costs_us, _ = a_chain(1, seed=0)

    with pytest.raises(ValueError, match="errors"):
        bounded_search(problem, costs_us, errors, bound)
