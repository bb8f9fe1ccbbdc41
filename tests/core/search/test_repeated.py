"""Searches repeated over one problem find what single ones find, and what brute force finds."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from collage_core.contract.cost import INVALID
from collage_core.errors import NoCoverError
from collage_core.search import (
    ExactSearch,
    SearchCandidate,
    SearchLimits,
    SearchProblem,
    SearchResult,
    SearchTarget,
    prepare,
    state_graph,
)
from collage_core.search.normal import Vector
from collage_core.search.repeated import RepeatedSearch


def found_by(run: Callable[..., SearchResult], *costs: Vector) -> tuple[Any, ...] | None:
    """Return what a search found; None if no plan covers the graph."""
    try:
        result = run(*costs)
    except NoCoverError:
        return None
    return result.candidates, result.costs_us, result.total_us, result.exact, result.gap_us


def costs_of(instance: Any, rng: random.Random, kind: str) -> Vector:
    """Return costs of all candidates: the instance's own, others of the same size, or such that most plans tie."""
    own = [instance.costs_us.get((each.target, each.key), INVALID) for each in instance.problem.candidates]
    if kind == "own":
        return np.array(own, dtype=np.float64)
    others = {"other": lambda: rng.uniform(0.0, 9.0), "ties": lambda: float(rng.choice([0, 1])), "free": lambda: 0.0}
    drawn = [others[kind]() if rng.random() < 0.9 else INVALID for _ in own]
    return np.array([INVALID if cost == INVALID else new for cost, new in zip(own, drawn, strict=True)])


@pytest.mark.parametrize("style", ["uniform", "adversarial"])
def test_a_repeated_search_finds_what_a_single_one_finds(
    style: str, draw: Callable[..., Any], best_plan: Callable[..., Any]
) -> None:
    kept = 0
    for seed in range(150):
        rng = random.Random(seed)
        instance = draw(rng, style)
        prepared = prepare(instance.problem)
        first = costs_of(instance, rng, "own")
        repeated = RepeatedSearch(prepared, np.isfinite(first).tolist())
        kept += repeated.graph is not None
        for kind in ("own", "other", "ties", "free", "own"):
            costs_us = costs_of(instance, rng, kind)
            single = ExactSearch(prepared, costs_us.tolist())
            assert found_by(repeated.run, costs_us) == found_by(single.run), (style, seed, kind)
        plan = found_by(repeated.run, first)
        wanted = best_plan(instance)
        assert (plan is None) == (wanted is None), (style, seed)
        if plan is not None:
            assert set(plan[0]) == set(wanted), (style, seed)
    assert kept == 150


def diamonds(count: int) -> SearchProblem:
    """Many nodes that do not depend on each other, and pairs of them: states grow exponentially."""
    rng = random.Random(0)
    nodes = {1 << node for node in range(count)} | {1 << a | 1 << b for a in range(count) for b in range(a)}
    return SearchProblem.from_predecessors(
        [()] * count,
        targets=[SearchTarget(name="a", toolchain="a"), SearchTarget(name="b", toolchain="b")],
        candidates=[SearchCandidate(nodes=each, target=rng.choice("ab"), key=str(each)) for each in sorted(nodes)],
    )


def test_a_problem_with_too_many_states_is_left_to_the_exact_search() -> None:
    prepared = prepare(diamonds(10))
    costs_us = np.random.default_rng(0).uniform(1, 9, len(prepared.problem.candidates))
    usable = [True] * len(costs_us)
    small = RepeatedSearch(prepared, usable, SearchLimits(max_states=100))
    large = RepeatedSearch(prepared, usable)
    assert small.graph is None
    assert large.graph is not None
    cut_off = ExactSearch(prepared, costs_us.tolist(), limits=SearchLimits(max_states=100))
    for _ in range(2):
        assert found_by(small.run, costs_us) == found_by(cut_off.run)
        assert found_by(large.run, costs_us) == found_by(ExactSearch(prepared, costs_us.tolist()).run)


def test_a_problem_with_too_many_moves_is_left_to_the_exact_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_graph, "_MOST_EDGES", 50)
    prepared = prepare(diamonds(6))

    assert RepeatedSearch(prepared, [True] * len(prepared.problem.candidates)).graph is None


def test_what_is_not_usable_is_not_used_whatever_it_costs() -> None:
    prepared = prepare(diamonds(2))  # both nodes alone, and the pair
    repeated = RepeatedSearch(prepared, [True, True, False])
    costs_us = np.array([4.0, 4.0, 0.0])

    for _ in range(3):
        assert [c.nodes for c in repeated.run(costs_us).candidates] == [0b01, 0b10]


def test_a_problem_without_kernels_has_an_empty_plan() -> None:
    problem = SearchProblem.from_predecessors(
        [(), (0,)], targets=[SearchTarget(name="a", toolchain="a")], candidates=[], host=0b11
    )
    repeated = RepeatedSearch(prepare(problem), [])

    for _ in range(2):
        assert repeated.run(np.array([])).candidates == ()


def test_a_plan_of_days_is_counted_exactly() -> None:
    prepared = prepare(diamonds(4))
    costs_us = np.random.default_rng(1).uniform(1e10, 9e10, len(prepared.problem.candidates))
    repeated = RepeatedSearch(prepared, [True] * len(costs_us))
    repeated.run(costs_us)
    assert found_by(repeated.run, costs_us) == found_by(ExactSearch(prepared, costs_us.tolist()).run)


def test_costs_that_are_none_are_refused() -> None:
    prepared = prepare(diamonds(2))
    repeated = RepeatedSearch(prepared, [True] * 3)
    for wrong in (np.nan, -1.0):
        with pytest.raises(ValueError, match="NaN or negative"):
            repeated.run(np.array([1.0, wrong, 2.0]))
