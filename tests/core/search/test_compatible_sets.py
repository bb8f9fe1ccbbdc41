"""Targets that exclude each other: the plan is the best over all sets that do not, each solved by itself."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from collage_core.errors import NoCoverError
from collage_core.search import SearchProblem, SearchTarget, search
from collage_core.search.integer_program import is_available, solve

Plan = tuple[Any, ...]


def quarrelsome(rng: random.Random, targets: Sequence[SearchTarget]) -> tuple[SearchTarget, ...]:
    """The same targets, some of which exclude others; only one of two need say so."""
    toolchains = sorted({target.toolchain for target in targets})
    return tuple(
        dataclasses.replace(target, excludes=frozenset(name for name in toolchains if rng.random() < 0.4))
        for target in targets
    )


def agree(targets: Sequence[SearchTarget]) -> bool:
    """Whether all may be in one process, by what they declare."""
    return all(
        one.mixable and other.mixable and one.toolchain not in other.excludes and other.toolchain not in one.excludes
        for one, other in itertools.combinations(targets, 2)
    )


def best_of_all_sets(plans: Sequence[Plan], price: Callable[[Any], float], targets: Sequence[SearchTarget]) -> float:
    """Least cost over every set of targets that agree, of the plans that use no others; by counting them all out."""
    best = float("inf")
    for size in range(len(targets) + 1):
        for chosen in itertools.combinations(targets, size):
            if agree(chosen):
                names = {target.name for target in chosen}
                costs = [sum(map(price, plan)) for plan in plans if {c.target for c in plan} <= names]
                best = min([best, *costs])
    return best


def found(problem: SearchProblem, costs: Any) -> tuple[float, frozenset[str]]:
    try:
        result = search(problem, costs)
    except NoCoverError:
        return float("inf"), frozenset()
    return result.total_us, result.targets


@pytest.mark.parametrize("style", ["uniform", "adversarial"])
def test_the_plan_is_the_best_over_all_compatible_sets(
    style: str, draw: Callable[..., Any], plans_of: Callable[..., Any]
) -> None:
    rng = random.Random(11)
    parted = 0
    for _ in range(25):
        instance = draw(rng, style)
        everybody = tuple(dataclasses.replace(t, excludes=frozenset()) for t in instance.problem.targets)
        free = dataclasses.replace(instance, problem=dataclasses.replace(instance.problem, targets=tuple(everybody)))
        plans = plans_of(dataclasses.replace(free, problem=_all_mixable(free.problem)))
        targets = quarrelsome(rng, everybody)
        problem = dataclasses.replace(instance.problem, targets=targets)

        expected = best_of_all_sets(plans, free.price_us, targets)

        total_us, used = found(problem, instance.costs)
        assert total_us == pytest.approx(expected)
        assert agree([target for target in targets if target.name in used])
        parted += expected > best_of_all_sets(plans, free.price_us, everybody)
        if is_available() and total_us < float("inf"):
            assert solve(problem, instance.costs).total_us == pytest.approx(expected)
    assert parted > 2  # in so many what they exclude costs something


def _all_mixable(problem: SearchProblem) -> SearchProblem:
    return dataclasses.replace(problem, targets=tuple(dataclasses.replace(t, mixable=True) for t in problem.targets))
