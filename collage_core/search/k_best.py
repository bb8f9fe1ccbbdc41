"""Several distinct near-best plans."""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Iterator

from collage_core.search.exact import Allow, ExactSearch, SearchResult
from collage_core.search.layered import Edges, Move, State


def k_best(
    search: ExactSearch,
    k: int,
    *,
    allow: Allow | None = None,
    within: float = float("inf"),
) -> tuple[SearchResult, ...]:
    """The cheapest plans, cheapest first; the first is that of `search.run`.

    Plans that differ only in candidates that are equal in nodes and target count as one. All plans carry
    `exact` and `gap_us` of the first: whether the list may lack cheaper ones. Where there are too many states
    to list further plans, the first is all there is.

    Args:
        search: Problem and costs.
        k: Most plans to return.
        allow: Which candidates may be used; all if absent.
        within: Leave out plans dearer than so many times the best one.

    Raises:
        NoCoverError: If there is not even one plan.
    """
    if k < 1:
        return ()
    best = search.run(allow)
    plans = [best]
    if k == 1:
        return tuple(plans)
    found = {_identity(best)}
    streams = [_paths(graph, search.node_count) for graph in search.state_graphs(allow)]
    for _, moves in heapq.merge(*streams, key=lambda path: path[0]):
        plan = search.result_of(moves)
        if plan.total_us > best.total_us * within or len(plans) == k:
            break
        identity = _identity(plan)
        if identity not in found:
            found.add(identity)
            plans.append(dataclasses.replace(plan, exact=best.exact, gap_us=best.gap_us, unmeasured=best.unmeasured))
    return tuple(plans)


def _identity(plan: SearchResult) -> frozenset[tuple[int, str]]:
    return frozenset((candidate.nodes, candidate.target) for candidate in plan.candidates)


def _paths(graph: Edges, goal: int) -> Iterator[tuple[int, list[Move]]]:
    """Every whole path in order of value: best first, knowing exactly what remains from every state."""
    remaining: dict[State, int] = {(goal, 0): 0}
    for state in reversed(graph):  # moves lead to later layers only
        ways = [price + remaining[to] for _, to, price in graph[state] if to in remaining]
        if ways:
            remaining[state] = min(ways)
    start = next(iter(graph), None)
    if start not in remaining:
        return
    # Of equally good partial plans the longest is continued, so that ties do not keep all of them open. No two
    # have the same moves, so nothing after `order` is ever compared.
    queue: list[tuple[int, int, tuple[int, ...], State, int, tuple[Move, ...]]] = []
    heapq.heappush(queue, (remaining[start], 0, (), start, 0, ()))
    while queue:
        total, _, order, state, value, moves = heapq.heappop(queue)
        if state[0] == goal:
            yield total, list(moves)
            continue
        for move, to, price in graph[state]:
            if to in remaining:
                now = value + price
                rest = (to, now, (*moves, move))
                heapq.heappush(queue, (now + remaining[to], -to[0], (*order, move.order), *rest))
