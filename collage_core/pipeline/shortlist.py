"""Which plans are timed end to end: every target alone, and the most promising mixes."""

from __future__ import annotations

from collections.abc import Sequence

from collage_core.contract import INVALID, Joins, Target
from collage_core.errors import NoCoverError
from collage_core.fusion import Partitioning
from collage_core.pipeline.plan import Plan
from collage_core.pipeline.pool import CandidatePool
from collage_core.search import SearchResult, k_best
from collage_core.search.exact import Allow

WITHIN = 1.15
"""A mix predicted to be slower than this many times the best whole-model kernel is not worth timing."""


def singles(pool: CandidatePool, targets: Sequence[Target]) -> tuple[Plan, ...]:
    """The plan of each target alone, where it has one.

    The whole model as one kernel where the target can; else the cheapest of its own kernels where they cover it; else,
    if it compiles regions, its largest ones, disjoint, as `partition_for` would take them, and the cheapest of the
    others for the rest.
    """
    plans = (_single(pool, target) for target in targets)
    return tuple(plan for plan in plans if plan is not None)


def mixes(pool: CandidatePool, count: int) -> tuple[Plan, ...]:
    """The cheapest plans of more than one kernel, best first; none if they are hopeless.

    Args:
        pool: The candidates.
        count: Most plans to return.
    """
    wholes = [cost for c in pool if pool.is_whole(c) and (cost := pool.selected_us(c)) is not None]
    limit_us = min(wholes, default=INVALID) * WITHIN
    try:
        found = k_best(pool.engine(), count, allow=lambda c: c.nodes != pool.whole, within=WITHIN)
    except NoCoverError:
        return ()
    return tuple(
        as_plan(pool, f"mixed-{number}", result, single=False)
        for number, result in enumerate(found, start=1)
        if result.total_us <= limit_us
    )


def as_plan(pool: CandidatePool, name: str, result: SearchResult, *, single: bool) -> Plan:
    """A search's result as a plan."""
    return Plan(
        name=name,
        single=single,
        partitioning=Partitioning(pool.graph, tuple(pool.candidate(c) for c in result.candidates)),
        costs_us=result.costs_us,
        dispatch_us=pool.dispatch_us,
    )


def _single(pool: CandidatePool, target: Target) -> Plan | None:
    engine = pool.engine()
    greedy = _largest(pool, target) if target.mixable else set()
    covered = 0  # of what needs a kernel: host nodes may be part of several
    for nodes in greedy:
        covered |= nodes & pool.graph.needs_kernel
    attempts: list[Allow] = [lambda c: c.target == target.name and c.nodes == pool.whole]
    if covered:
        attempts.append(lambda c: c.target == target.name)
    if covered and target.joins is Joins.ANY:
        attempts.append(lambda c: c.nodes in greedy if c.target == target.name else not c.nodes & covered)
    for allow in attempts:
        try:
            return as_plan(pool, target.name, engine.run(allow), single=True)
        except NoCoverError:
            continue
    return None


def _largest(pool: CandidatePool, target: Target) -> set[int]:
    usable = [c for c in pool if c.target.name == target.name and pool.selected_us(c) is not None]
    taken: set[int] = set()
    covered = 0
    for candidate in sorted(usable, key=lambda c: (-c.sub_graph.nodes.bit_count(), c.sub_graph.nodes)):
        nodes = candidate.sub_graph.nodes & pool.graph.needs_kernel
        if nodes and not nodes & covered:
            taken.add(candidate.sub_graph.nodes)
            covered |= nodes
    return taken
