"""Search the candidates for the best plan, merge its neighbours, and measure it again until it stays the same."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Sequence

from collage.explore.exploration import Exploration, UncoveredError
from collage.explore.measuring import measured
from collage_core.candidates.pool import CandidatePool
from collage_core.candidates.simple_plan import simple_plan
from collage_core.errors import NoCoverError
from collage_core.fusion import CandidateKernel, merged_neighbours
from collage_core.ir.graph.masks import mask_of
from collage_core.search import SearchCandidate, SearchResult
from collage_core.search.exact import Allow


def searched(exploration: Exploration, allow: Allow | None = None) -> tuple[Exploration, SearchResult]:
    """Search the cheapest plan of what has a cost.

    Raises:
        UncoveredError: If no plan covers the graph.
    """
    began = time.monotonic()
    try:
        result = exploration.pool.engine().run(allow)
    except NoCoverError as error:
        raise UncoveredError(error, exploration) from error
    spent = exploration.search_s + time.monotonic() - began
    if allow is None:
        exploration = exploration.told(result)
    return dataclasses.replace(exploration, search_s=spent, rounds=exploration.rounds + 1), result


def best_paths(exploration: Exploration) -> tuple[Exploration, list[SearchResult]]:
    """Search the best plan and, where that is one kernel for everything, also the best that is not.

    Raises:
        UncoveredError: If no plan covers the graph.
    """
    exploration, best = searched(exploration)
    whole = exploration.pool.whole
    if all(chosen.nodes != whole for chosen in best.candidates):
        return exploration, [best]
    with contextlib.suppress(NoCoverError):
        exploration, other = searched(exploration, lambda chosen: chosen.nodes != whole)
        return exploration, [best, other]
    return exploration, [best]


def merged_on(exploration: Exploration, result: SearchResult) -> list[CandidateKernel]:
    """Return neighbours on a plan that one target runs and could run as one kernel."""
    path = [exploration.pool.candidate(chosen) for chosen in result.candidates]
    merged: list[CandidateKernel] = []
    for rule in exploration.setup.rules:
        mine = [c for c in path if c.target == rule.target and rule.takes_any_region]
        if len(mine) > 1:
            others = [c.sub_graph.nodes for c in path if c not in mine]
            refused = mask_of({*rule.query, *rule.pinned})
            parts = [c.sub_graph for c in mine]
            whole = merged_neighbours(exploration.graph, parts, others, rule.target, forbidden=refused)
            merged += [CandidateKernel(each, rule.spec, rule.target) for each in whole if each not in parts]
    return merged


def confirmed(
    exploration: Exploration, found: SearchResult | None = None, *, with_simple: bool = False
) -> tuple[Exploration, SearchResult]:
    """Search, measure the path again, and search again until it stays the same.

    Args:
        exploration: What is known so far.
        found: What `searched` finds in it, where that is known.
        with_simple: Whether the simple plan at its default price is measured again, too (`simple_plan`).

    Raises:
        UncoveredError: If no plan covers the graph.
    """
    exploration, result = searched(exploration) if found is None else (exploration, found)
    for _ in range(exploration.setup.preset.confirm_rounds):
        pool = exploration.pool
        simple = _simple(pool, result) if with_simple else ()
        path = [pool.candidate(chosen) for chosen in dict.fromkeys((*result.candidates, *simple))]
        fresh = [c for c in path if pool.cache_key(c) not in pool.costs.confirmed]
        if not fresh:
            break
        lacking = [c for c in fresh if not exploration.setup.source.is_confirmed(c)]
        exploration = measured(exploration, "measuring the chosen path again", lacking, "confirm")
        pool = exploration.pool
        pool = pool.with_costs(pool.costs.confirming(map(pool.cache_key, fresh)))
        exploration, result = searched(dataclasses.replace(exploration, pool=pool))
    return exploration, result


def _simple(pool: CandidatePool, cheapest: SearchResult) -> Sequence[SearchCandidate]:
    """Return the kernels of the simple plan; none if the cheapest plan has two at most."""
    return simple_plan(pool, cheapest.total_us).candidates if len(cheapest.candidates) > 2 else ()
