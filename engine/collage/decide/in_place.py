"""What kernels take between their real neighbours, back into the search.

A kernel measured by itself stands behind work like that of a plan, but not behind the kernels that precede it there. So
while plans race, each of their kernels is timed in its place, too. These times replace its cost, and the search is
repeated: a plan that still looks better than everything that was timed is worth timing.

The kernels of a plan are on it because they measured fast, so in place they take longer as a rule: the least of many
noisy numbers is too low. Other kernels were not tried in place and would look better than they are. So their costs are
multiplied by what those of the same target on plans that raced turned out to be off by: kernels of one toolchain feel
the caches that they find more than those of another.

Steps that are timed one by one do not add up to what the plan takes. So a further plan is compared with the sum of the
steps of a plan that was timed, not with what that took as a whole.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from collage.decide.decision import DISPLACE_BELOW
from collage.decide.shortlist import mixes
from collage.decide.timed import Timed
from collage_core.candidates.costs import CacheKey
from collage_core.candidates.plan import Plan
from collage_core.candidates.pool import CandidatePool
from collage_core.candidates.simple_plan import ALIKE
from collage_core.passes.call_sites import site_name

_ENOUGH: Final = 3
"""Kernels of a target that have to be timed in place to tell what its others are off by."""
_OFF_BY_US: Final = 10.0
"""Variance of what kernels take in place, in microseconds per microsecond of their cost in `FedBack.alike`: a standard
deviation of 0.3 of 0.1 ms, 0.1 of 1 ms and 0.02 of 22 ms. A kernel of many operators is off by the sum of what each is
off by, so its variance grows with its cost. Counts like `_ENOUGH` kernels of the same race.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FedBack:
    """What is known after a race.

    Attributes:
        pool: The candidates, with what those that were timed in place take there.
        alike: The same, the others with what they cost times what those usually turned out to be off by.
        plans: The plans that raced, with these costs.
        worthwhile: Further plans that look better than all of them.
        fastest: The one that took least, with these costs; None if its steps were not timed, as those of one kernel.
        off_by_us: What kernels turned out to be off by: see `_OFF_BY_US`.
    """

    pool: CandidatePool
    alike: CandidatePool
    plans: tuple[Plan, ...]
    worthwhile: tuple[Plan, ...]
    fastest: Plan | None
    off_by_us: float = _OFF_BY_US


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
    alone = pool.with_costs(pool.costs.alone())
    found: dict[CacheKey, list[float]] = {}
    both: dict[str, list[tuple[float, float]]] = {}
    corrected = []
    in_steps: list[Plan] = []
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
                if cost := alone.cost_us(kernel):
                    both.setdefault(kernel.target.name, []).append((cost, times[kernel.sub_graph.nodes]))
        corrected.append(_with_costs(plan, times))
        if times:
            in_steps.append(corrected[-1])
    in_place_us = {key: statistics.median(each) for key, each in found.items()}
    pool = pool.with_costs(pool.costs.in_place(in_place_us))
    if not in_steps:
        return FedBack(pool=pool, alike=pool, plans=tuple(corrected), worthwhile=(), fastest=None)
    whole_us = {each.name: each.usual_us(usual_us) for each in timed}
    fastest = min(in_steps, key=lambda plan: whole_us[plan.name])
    limit_us = DISPLACE_BELOW * min(whole_us.values()) * fastest.predicted_us / whole_us[fastest.name]
    known = {plan.key for plan in plans}
    factors = _factors(both, {candidate.target.name for candidate in pool})
    alike = pool.with_costs(pool.costs.off_by(factors))
    better = [plan for plan in mixes(alike, most) if plan.key not in known and counted_us(plan, fastest) < limit_us]
    return FedBack(
        pool=pool,
        alike=alike,
        plans=tuple(corrected),
        worthwhile=renamed(better, plans),
        fastest=fastest if whole_us[fastest.name] == min(whole_us.values()) else None,
        off_by_us=_still_off_by(both, factors),
    )


def counted_us(plan: Plan, than: Plan) -> float:
    """Return what a plan is predicted to take, and `ALIKE` more if it has more kernels than another.

    Where both cannot be told apart the other is kept, so it has to be faster by so much.
    """
    return plan.predicted_us * (1 + ALIKE if len(plan.kernels) > len(than.kernels) else 1)


def renamed(further: Sequence[Plan], plans: Sequence[Plan]) -> tuple[Plan, ...]:
    """Return further mixed plans under names that no other plan has."""
    taken = {plan.name for plan in plans}
    fresh = (name for number in itertools.count(1) if (name := f"mixed-{number}") not in taken)
    return tuple(dataclasses.replace(plan, name=name) for plan, name in zip(further, fresh, strict=False))


def _factors(both: Mapping[str, Sequence[tuple[float, float]]], targets: Iterable[str]) -> dict[str, float]:
    """Return what each target's kernels are usually off by; what all are, where few of its own are known."""
    usually = _usually_off_by([pair for pairs in both.values() for pair in pairs])
    return {
        name: _usually_off_by(both[name]) if len(both.get(name, ())) >= _ENOUGH else usually for name in sorted(targets)
    }


def _usually_off_by(both: Sequence[tuple[float, float]]) -> float:
    """Return the median of what kernels take in place relative to their costs; they weigh as much as they cost.

    Args:
        both: Cost and time in place of each kernel that has both, in microseconds.

    Examples:
        >>> _usually_off_by([(10.0, 11.0), (1.0, 5.0), (20.0, 24.0)]), _usually_off_by([])
        (1.2, 1.0)
    """
    if not both:
        return 1.0
    costs, times = np.transpose(both)
    return float(np.quantile(times / costs, 0.5, weights=costs, method="inverted_cdf"))


def _still_off_by(both: Mapping[str, Sequence[tuple[float, float]]], factors: Mapping[str, float]) -> float:
    """Return what kernels are off by with these factors: see `_OFF_BY_US`.

    By the median of squares, because some small kernels are off by a half and more, and large ones are not.
    """
    usual = statistics.NormalDist().inv_cdf(0.75) ** 2  # median of the square of a number with variance 1
    off = [
        factors[name] * cost * math.log(time / cost / factors[name]) ** 2 for name in both for cost, time in both[name]
    ]
    return statistics.median([*off, *[_OFF_BY_US * usual] * _ENOUGH]) / usual


def _with_costs(plan: Plan, times_us: Mapping[int, float]) -> Plan:
    """Return a plan with other costs of some kernels, by the mask of their nodes."""
    known = zip(plan.partitioning.kernels, plan.costs_us, strict=True)
    costs_us = tuple(times_us.get(kernel.sub_graph.nodes, cost) for kernel, cost in known)
    return dataclasses.replace(plan, costs_us=costs_us)
