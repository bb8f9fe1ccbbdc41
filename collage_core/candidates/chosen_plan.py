"""Convert a search result into a plan."""

from __future__ import annotations

from collage_core.candidates.plan import Plan
from collage_core.candidates.pool import CandidatePool
from collage_core.fusion import Partitioning
from collage_core.search import SearchResult


def as_plan(pool: CandidatePool, name: str, result: SearchResult, *, single: bool) -> Plan:
    """Convert a search result to a plan."""
    kernels = tuple(pool.candidate(c) for c in result.candidates)
    return Plan(
        name=name,
        single=single,
        partitioning=Partitioning(pool.graph, kernels),
        costs_us=result.costs_us,
        dispatch_us=pool.dispatch_us,
        copies=pool.copies(kernels),
    )
