"""Handle mutually exclusive targets: find the best plan of each set that may share one.

The search covers every maximal set separately and keeps the cheapest plan of all (`ExactSearch`). That cost is a
prediction, so the best plans of the sets are also timed against each other end to end, and the record holds each
result.
"""

from __future__ import annotations

import functools

from collage.report.facts.search_facts import CompatibleSetFacts
from collage_core.candidates.pool import CandidatePool
from collage_core.errors import NoCoverError
from collage_core.search import ExactSearch, SearchCandidate, SearchResult, SearchTarget, compatible_sets

_US_PER_MS = 1000.0


def sets_apart(pool: CandidatePool) -> tuple[frozenset[str], ...]:
    """Return the maximal sets of targets that may share a plan, in name order; none if all targets may.

    Targets that cannot share a plan with any other target are left out: they run whole models.
    """
    found = compatible_sets(_mixable(pool))
    return found if len(found) > 1 else ()


def best_of_each(pool: CandidatePool, engine: ExactSearch, *, whole: bool = True) -> tuple[SearchResult, ...]:
    """Find the cheapest plan of each compatible set, cheapest first; none if all targets may share a plan.

    Args:
        pool: The candidates.
        engine: Search over the candidates.
        whole: Whether the plan may be one kernel of the whole model.
    """
    results = [_best(pool, engine, names, whole=whole) for names in sets_apart(pool)]
    different = {result.candidates: result for result in results if result is not None}
    return tuple(sorted(different.values(), key=lambda result: result.total_us))


def compatible_set_facts(pool: CandidatePool) -> tuple[CompatibleSetFacts, ...]:
    """Return the predicted latency and the targets used of each compatible set, in the form of the record."""
    sets = sets_apart(pool)
    engine = pool.engine() if sets else None
    facts = []
    for names in sets:
        assert engine is not None
        best = _best(pool, engine, names, whole=True)
        facts.append(
            CompatibleSetFacts(
                targets=tuple(sorted(names)),
                predicted_ms=None if best is None else best.total_us / _US_PER_MS,
                used=() if best is None else tuple(sorted(best.targets)),
            )
        )
    return tuple(facts)


def _mixable(pool: CandidatePool) -> list[SearchTarget]:
    found = {each.target.name: SearchTarget.of(each.target) for each in pool if each.target.mixable}
    return [target for _, target in sorted(found.items())]


def _best(pool: CandidatePool, engine: ExactSearch, names: frozenset[str], *, whole: bool) -> SearchResult | None:
    try:
        return engine.run(functools.partial(_is_of, names, None if whole else pool.whole))
    except NoCoverError:
        return None


def _is_of(names: frozenset[str], barred: int | None, candidate: SearchCandidate) -> bool:
    return candidate.target in names and candidate.nodes != barred
