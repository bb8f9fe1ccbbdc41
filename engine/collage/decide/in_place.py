"""What kernels take between their real neighbours, back into the search.

A kernel measured by itself stands behind work like that of a plan, but not behind the kernels that precede it there. So
while plans race, each of their kernels is timed in its place, too. These times replace its cost, and the search is
repeated: a plan that still looks better than everything that was timed is worth timing.

The kernels of a plan are on it because they measured fast, so in place they take longer as a rule: the least of many
noisy numbers is too low. Other kernels were not tried in place and would look better than they are. So their costs are
multiplied by what those of the plans that raced turned out to be off by.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence

from collage.decide.decision import DISPLACE_BELOW, Timed
from collage.decide.shortlist import mixes
from collage_core.candidates.costs import CacheKey
from collage_core.candidates.plan import Plan
from collage_core.candidates.pool import CandidatePool
from collage_core.passes.call_sites import site_name


@dataclasses.dataclass(frozen=True, kw_only=True)
class FedBack:
    """What is known after a race.

    Attributes:
        pool: The candidates, with what those that were timed in place take there.
        alike: The same, the others with what they cost times what those usually turned out to be off by.
        plans: The plans that raced, with these costs.
        worthwhile: Further plans that look better than all of them.
    """

    pool: CandidatePool
    alike: CandidatePool
    plans: tuple[Plan, ...]
    worthwhile: tuple[Plan, ...]


def fed_back(
    pool: CandidatePool, plans: Sequence[Plan], timed: Sequence[Timed], usual_us: float | None, most: int
) -> FedBack:
    """Give kernels the costs that they had in place, and search again.

    Args:
        pool: The candidates.
        plans: Those that raced.
        timed: How they fared.
        usual_us: What the calibration kernel usually takes on this machine; None if it never ran.
        most: Number of mixed plans to consider.
    """
    by_name = {each.name: each for each in timed}
    found: dict[CacheKey, list[float]] = {}
    both: list[tuple[float, float]] = []
    corrected = []
    for plan in plans:
        sites = by_name[plan.name].in_place_us(usual_us) if plan.name in by_name else {}
        times = {
            kernel.sub_graph.nodes: sites[site_name(number)]
            for number, kernel in enumerate(plan.kernels)
            if site_name(number) in sites
        }
        for kernel in plan.kernels:
            if kernel.sub_graph.nodes in times:
                found.setdefault(pool.cache_key(kernel), []).append(times[kernel.sub_graph.nodes])
                both.append((plan.cost_of[kernel.sub_graph.nodes], times[kernel.sub_graph.nodes]))
        corrected.append(_with_costs(plan, times))
    in_place_us = {key: statistics.median(each) for key, each in found.items()}
    pool = pool.with_costs(pool.costs.in_place(in_place_us))
    if not found:
        return FedBack(pool=pool, alike=pool, plans=tuple(corrected), worthwhile=())
    limit_us = DISPLACE_BELOW * min(each.usual_us(usual_us) for each in timed)
    known = {plan.key for plan in plans}
    names = {plan.name for plan in plans}
    alike = pool.with_costs(pool.costs.off_by(_usually_off_by(both)))
    better = [plan for plan in mixes(alike, most) if plan.key not in known and plan.predicted_us < limit_us]
    fresh = (name for number in range(1, 1 + len(names) + len(better)) if (name := f"mixed-{number}") not in names)
    worthwhile = tuple(dataclasses.replace(plan, name=name) for plan, name in zip(better, fresh, strict=False))
    return FedBack(pool=pool, alike=alike, plans=tuple(corrected), worthwhile=worthwhile)


def _usually_off_by(both: Sequence[tuple[float, float]]) -> float:
    """Return what kernels take in place relative to their costs: at most this in half of the time, more in the other.

    Args:
        both: Cost and time in place of each kernel that has both, in microseconds.

    Examples:
        >>> _usually_off_by([(10.0, 11.0), (1.0, 5.0), (20.0, 24.0)]), _usually_off_by([])
        (1.2, 1.0)
    """
    half_us, passed_us = sum(cost_us for cost_us, _ in both) / 2, 0.0
    for ratio, cost_us in sorted((time_us / cost_us, cost_us) for cost_us, time_us in both if cost_us):
        passed_us += cost_us
        if passed_us >= half_us:
            return ratio
    return 1.0


def _with_costs(plan: Plan, times_us: Mapping[int, float]) -> Plan:
    """Return a plan with other costs of some kernels, by the mask of their nodes."""
    kernels = plan.partitioning.kernels
    costs = zip(kernels, plan.costs_us, strict=True)
    return dataclasses.replace(
        plan, costs_us=tuple(times_us.get(kernel.sub_graph.nodes, cost) for kernel, cost in costs)
    )
