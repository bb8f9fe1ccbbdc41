"""Select the plans to time end to end: every target alone, and the most promising mixes."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

from collage.control.tie_breaking import Samples, TieBreaking, break_ties
from collage.decide.compatible_sets import best_of_each
from collage_core.candidates.chosen_plan import as_plan
from collage_core.candidates.plan import Plan
from collage_core.candidates.pool import CandidatePool
from collage_core.candidates.simple_plan import simple_plan
from collage_core.contract import INVALID, Joins, Target
from collage_core.errors import NoCoverError
from collage_core.search import SearchCandidate
from collage_core.search.exact import Allow

WITHIN = 1.25
"""Ratio to the best plan's prediction above which a mixed plan is not timed.

Predictions are sums of costs that were measured at different times; on a shared machine they are off by a fifth.
"""
_ALIKE = 0.75
"""Share of common nodes (intersection over union) above which two kernels of one target count as the same."""

_PRICES = (0.1, 0.05, 0.02)
"""Shares of the cheapest mix's prediction that each kernel of the simple plan has to save: the first that makes it at
most `_DEARER`.
"""
_DEARER = 1.1
"""Ratio to the cheapest mix's prediction above which the simple plan is not timed: small kernels that are measured by
themselves find their weights in the caches, and beside other load costs are off by as much.
"""


def shortlist(
    pool: CandidatePool, targets: Sequence[Target], count: int, source: Samples, tie_breaking: TieBreaking
) -> tuple[list[Plan], list[str]]:
    """Return the plans that are timed end to end, and a sentence for each kernel that a preference decided.

    Args:
        pool: The candidates.
        targets: Those that take part.
        count: Most mixed plans.
        source: Knows the samples behind each cost.
        tie_breaking: Whom to prefer where measurements cannot tell.
    """
    alone = singles(pool, targets)
    plans = list(alone)
    said: list[str] = []
    for plan in _with_simple(pool, mixes(pool, count, alone), count, alone):
        mixed, sentences = break_ties(plan, pool, source, tie_breaking)
        plans.append(mixed)
        said += sentences
    return plans, said


def singles(pool: CandidatePool, targets: Sequence[Target]) -> tuple[Plan, ...]:
    """Return the plan of each target alone, where it has one.

    The plan is the whole model as one kernel if the target can run it; otherwise the cheapest cover by its own
    kernels; otherwise, if the target compiles regions, its largest ones, disjoint, as `partition_for` would take
    them, with the cheapest kernels of other targets for the rest.
    """
    plans = (_single(pool, target) for target in targets)
    return tuple(plan for plan in plans if plan is not None)


def mixes(pool: CandidatePool, count: int, beside: Sequence[Plan] = ()) -> tuple[Plan, ...]:
    """Return promising plans of more than one kernel; none if no mixed plan is promising.

    The first is the cheapest plan. Each later one is the cheapest plan without the most expensive kernel of each
    earlier plan, or a kernel almost identical to it. Taking the next cheapest plans instead would give
    near-duplicates that share the errors in the first plan's costs. If targets exclude each other, the cheapest
    plan of each compatible set comes first: these differ most.

    A later one that is predicted to be slower than a plan that is timed in any case is left out, unless it uses a
    device. If predictions are off, those that are timed show it (`in_place`), and others are timed then; on a device
    nothing is timed in its place.

    Args:
        pool: The candidates.
        count: Maximum number of plans to return.
        beside: Plans that are timed in any case.
    """
    known, least_us = {plan.key for plan in beside}, min((plan.predicted_us for plan in beside), default=INVALID)
    engine = pool.engine()
    wholes = [cost for c in pool if pool.is_whole(c) and (cost := pool.alone_us(c)) is not None]
    limit_us = min(wholes, default=INVALID) * WITHIN
    without: list[SearchCandidate] = []
    plans: list[Plan] = []
    first = list(best_of_each(pool, engine, whole=False))
    while len(plans) < count:
        of_a_set = bool(first)
        try:
            result = first.pop(0) if first else engine.run(functools.partial(_is_other, pool.whole, without))
        except NoCoverError:
            break
        limit_us = min(limit_us, result.total_us * WITHIN)
        if result.total_us > limit_us and of_a_set:
            first.clear()  # the other sets' are dearer still
            continue
        if result.total_us > limit_us:
            break
        plan = as_plan(pool, f"mixed-{len(plans) + 1}", result, single=False)
        is_first = of_a_set or all(each.key in known for each in plans)
        if not is_first and plan.predicted_us > least_us and plan.is_on_host:
            break
        plans.append(plan)
        if not result.candidates:  # nothing but views
            break
        _, dearest = max(zip(result.costs_us, result.candidates, strict=True), key=lambda pair: pair[0])
        without.append(dearest)
    return tuple(plans)


def _with_simple(pool: CandidatePool, plans: Sequence[Plan], count: int, beside: Sequence[Plan]) -> list[Plan]:
    """Return plans with the simple one after the cheapest; see `simple_plan`.

    Args:
        pool: The candidates.
        plans: Mixed plans, the cheapest first.
        count: Most plans to return.
        beside: Plans that are timed in any case.
    """
    found = list(plans)
    if not found or len(found[0].kernels) < 3:  # nothing is simpler than two
        return found
    cheapest_us, known = found[0].predicted_us, {plan.key for plan in (*beside, *found)}
    priced = (as_plan(pool, "", simple_plan(pool, cheapest_us, price), single=False) for price in _PRICES)
    simple = next((plan for plan in priced if plan.predicted_us <= _DEARER * cheapest_us), None)
    if simple is not None and simple.key not in known:
        found.insert(1, simple)
    return [dataclasses.replace(plan, name=f"mixed-{number + 1}") for number, plan in enumerate(found[:count])]


def _is_other(whole: int, without: Sequence[SearchCandidate], candidate: SearchCandidate) -> bool:
    """Return whether a candidate is neither the whole model nor similar to an excluded one."""
    return candidate.nodes != whole and not any(_is_alike(candidate, each) for each in without)


def _is_alike(one: SearchCandidate, other: SearchCandidate) -> bool:
    """Return whether two candidates are of the same target and have most nodes in common."""
    both, either = one.nodes & other.nodes, one.nodes | other.nodes
    return one.target == other.target and both.bit_count() > _ALIKE * either.bit_count()


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
