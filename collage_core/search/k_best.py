"""Several distinct near-best plans."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from collage_core.errors import NoCoverError
from collage_core.search.exact import Allow, ExactSearch, SearchResult
from collage_core.search.problem import SearchCandidate


def k_best(
    search: ExactSearch,
    k: int,
    *,
    allow: Allow | None = None,
    max_searches: int | None = None,
    within: float = float("inf"),
) -> tuple[SearchResult, ...]:
    """The cheapest plans, cheapest first.

    After Lawler (1972): the next best plan differs from each one found, so it lacks one of that plan's
    candidates; each is forbidden in turn. Exact unless `max_searches` cuts it short; then the dearest kernels
    are tried first, whose replacement changes most. Plans that differ only in candidates that are equal in
    nodes and target count as one.

    Args:
        search: Problem and costs.
        k: Most plans to return.
        allow: Which candidates may be used; all if absent.
        max_searches: Most searches to run; no limit if absent.
        within: Leave out plans dearer than so many times the best one.

    Raises:
        NoCoverError: If there is not even one plan.
    """
    if k < 1:
        return ()
    return tuple(_plans(search, k, allow, max_searches, within))


def _plans(
    search: ExactSearch, k: int, allow: Allow | None, max_searches: int | None, within: float
) -> Iterator[SearchResult]:
    best = search.run(allow)
    left = float("inf") if max_searches is None else max_searches - 1
    serial = 0
    queue: list[tuple[float, int, SearchResult, frozenset[tuple[int, str]]]] = []
    heapq.heappush(queue, (best.total_us, serial, best, frozenset()))
    found: set[frozenset[tuple[int, str]]] = set()
    tried: set[frozenset[tuple[int, str]]] = set()
    while queue and len(found) < k:
        total_us, _, plan, forbidden = heapq.heappop(queue)
        if total_us > best.total_us * within:
            return
        identity = frozenset(map(_identity, plan.candidates))
        if identity not in found:
            found.add(identity)
            yield plan
        dearest = sorted(
            zip(plan.costs_us, plan.candidates, strict=True),
            key=lambda pair: (-pair[0], pair[1].nodes),
        )
        for _, candidate in dearest:
            without = forbidden | {_identity(candidate)}
            if without in tried or left <= 0 or len(found) >= k:
                continue
            tried.add(without)
            left -= 1
            try:
                other = search.run(_except(without, allow))
            except NoCoverError:
                continue
            serial += 1
            heapq.heappush(queue, (other.total_us, serial, other, without))


def _identity(candidate: SearchCandidate) -> tuple[int, str]:
    return candidate.nodes, candidate.target


def _except(forbidden: frozenset[tuple[int, str]], allow: Allow | None) -> Allow:
    def allowed(candidate: SearchCandidate) -> bool:
        if _identity(candidate) in forbidden:
            return False
        return allow is None or allow(candidate)

    return allowed
