"""Take what kernels take in place for their costs, and race what looks better then, twice at most.

What joins a race is timed in place, too, and so may show that another plan is better still.

Kernels that were not timed in place may be off by more or less than others were. So plans join, too, that are one move
away from the fastest and may be faster by so much that it is worth a race. Otherwise what kernels take alone would
choose among plans that differ in one of them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Final

from collage.control.tie_breaking import TieBreaking
from collage.decide.in_place import FedBack, counted_us, fed_back, renamed
from collage.decide.neighbours import variants_of
from collage.decide.races.going_on import NotRacedError, Race, gone_on
from collage.decide.races.saved_races import EndToEndTimings
from collage.decide.races.staying import WORTH, Outlook
from collage_core.candidates.plan import Plan
from collage_core.candidates.pool import CandidatePool

_TIMES: Final = 2
"""Times that further plans may join. When it was four, of fourteen mixes that were kept two had joined: one the first
time, one the second.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class WithFeedback:
    """What is known once plans raced.

    Attributes:
        found: The plans that raced, and what kernels cost by now.
        timings: How they fared.
        alone_us: What each plan was predicted to take by its kernels measured alone, in microseconds, by name.
    """

    found: FedBack
    timings: EndToEndTimings
    alone_us: Mapping[str, float]


def with_feedback(
    pool: CandidatePool,
    plans: Sequence[Plan],
    timings: EndToEndTimings,
    race: Race,
    *,
    usual_us: float | None,
    most: int,
    seed: int,
    tie_breaking: TieBreaking,
) -> WithFeedback:
    """Change costs to what kernels take in place, and race further plans that look better by them.

    Args:
        pool: The candidates.
        plans: Those that raced.
        timings: How they fared.
        race: Times plans.
        usual_us: What the calibration kernel usually takes on the machine; None if it never ran.
        most: Most further plans at a time.
        seed: As for `decide`.
        tie_breaking: As for `decide`.
    """
    alone_us = {plan.name: plan.predicted_us for plan in plans}
    found = fed_back(pool, plans, timings.timed, usual_us, most)
    looked_around: set[str] = set()
    joined = 0
    while joined < _TIMES:
        further = found.worthwhile
        if len(further) < most and found.fastest is not None and found.fastest.key not in looked_around:
            looked_around.add(found.fastest.key)
            further = (*further, *_variants(found, found.fastest, most - len(further)))
        if not further and not timings.open:
            break
        try:
            timings = gone_on(race, found.plans, further, timings, seed=seed, tie_breaking=tie_breaking)
        except NotRacedError:
            break
        joined += 1 if further else 0
        alone_us |= {plan.name: plan.predicted_us for plan in further}
        left = most if joined < _TIMES else 0
        found = fed_back(found.pool, [*found.plans, *further], timings.timed, usual_us, left)
    return WithFeedback(found=found, timings=timings, alone_us=alone_us)


def _variants(found: FedBack, fastest: Plan, most: int) -> tuple[Plan, ...]:
    """Return plans that are one move away from the fastest and worth a race: those that promise most of it."""
    taken = (*found.plans, *found.worthwhile)
    known = {plan.key for plan in taken}
    near = {plan.key: plan for plan in variants_of(found.alike, fastest) if plan.key not in known}
    order = sorted((-_saving(found, plan, fastest), key) for key, plan in near.items())
    return renamed([near[key] for saving, key in order if -saving >= WORTH][:most], taken)


def _saving(found: FedBack, plan: Plan, fastest: Plan) -> float:
    """Return what a plan is expected to save where it saves enough to be kept, as a share of what the fastest takes."""
    untimed = [kernel for kernel in plan.kernels if found.pool.cache_key(kernel) not in found.pool.costs.in_place_us]
    unknown_us = math.sqrt(found.off_by_us * sum(found.alike.cost_us(kernel) or 0.0 for kernel in untimed))
    mean = math.log(counted_us(plan, fastest) / fastest.predicted_us)
    return Outlook(mean, max(unknown_us / plan.predicted_us, 1e-9), 0.0).saving(0.0)
