"""Search the candidates for the best plan, merge its neighbours, and measure it again until it stays the same."""

from __future__ import annotations

import contextlib
import dataclasses
import time

from collage.explore.exploration import Exploration, UncoveredError
from collage.explore.measuring import measured
from collage_core.errors import NoCoverError
from collage_core.fusion import CandidateKernel, merged_neighbours
from collage_core.ir.graph.masks import mask_of
from collage_core.search import SearchResult
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


def confirmed(exploration: Exploration, found: SearchResult | None = None) -> tuple[Exploration, SearchResult]:
    """Search, measure the path again, and search again until it stays the same.

    Args:
        exploration: What is known so far.
        found: What `searched` finds in it, where that is known.

    Raises:
        UncoveredError: If no plan covers the graph.
    """
    exploration, result = searched(exploration) if found is None else (exploration, found)
    for _ in range(exploration.setup.preset.confirm_rounds):
        pool = exploration.pool
        path = [pool.candidate(chosen) for chosen in result.candidates]
        fresh = [c for c in path if pool.cache_key(c) not in pool.costs.confirmed]
        if not fresh:
            break
        lacking = [c for c in fresh if not exploration.setup.source.is_confirmed(c)]
        exploration = measured(exploration, "measuring the chosen path again", lacking, "confirm")
        pool = exploration.pool
        pool = pool.with_costs(pool.costs.confirming(map(pool.cache_key, fresh)))
        exploration, result = searched(dataclasses.replace(exploration, pool=pool))
    return exploration, result
