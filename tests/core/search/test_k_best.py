from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from collage_core.errors import NoCoverError
from collage_core.search import ExactSearch, k_best


@pytest.mark.parametrize("style", ["uniform", "adversarial"])
def test_plans_come_cheapest_first_and_none_is_skipped(
    style: str,
    draw: Callable[..., Any],
    plans_of: Callable[..., Any],
    ranked: Callable[..., Any],
) -> None:
    for seed in range(150):
        instance = draw(random.Random(seed), style)
        cheapest: dict[frozenset[tuple[int, str]], float] = {}
        for plan in plans_of(instance):
            identity = frozenset((c.nodes, c.target) for c in plan)
            cost = ranked(instance, plan)[0] / 1e6
            cheapest[identity] = min(cost, cheapest.get(identity, cost))
        if not cheapest:
            with pytest.raises(NoCoverError):
                k_best(ExactSearch(instance.problem, instance.costs), 5)
            continue

        plans = k_best(ExactSearch(instance.problem, instance.costs), 5)

        identities = [frozenset((c.nodes, c.target) for c in plan.candidates) for plan in plans]
        assert len(set(identities)) == len(identities)
        assert [plan.total_us for plan in plans] == pytest.approx(sorted(cheapest.values())[:5])
        assert [cheapest[i] for i in identities] == pytest.approx([p.total_us for p in plans])


def test_plans_much_dearer_than_the_best_are_left_out(draw: Callable[..., Any]) -> None:
    instance = draw(random.Random(2), "uniform")
    search = ExactSearch(instance.problem, instance.costs)

    plans = k_best(search, 50, within=1.2)

    assert 1 <= len(plans) < len(k_best(search, 50))
    assert all(plan.total_us <= 1.2 * plans[0].total_us for plan in plans)


def test_the_first_plan_is_the_best_and_says_what_is_known(draw: Callable[..., Any]) -> None:
    for seed in range(40):
        instance = draw(random.Random(seed), "uniform")
        search = ExactSearch(instance.problem, instance.costs)
        try:
            best = search.run()
        except NoCoverError:
            continue
        first, *others = k_best(search, 4)
        assert first == best
        assert {plan.exact for plan in others} <= {best.exact}
