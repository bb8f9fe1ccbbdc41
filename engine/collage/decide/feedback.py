"""Take what kernels take in place for their costs, and race what looks better then, a few times over.

What joins a race is timed in place, too, and so may show that another plan is better still.

Kernels that were not timed in place may be off by much more than others were. So plans join, too, that are one move
away from the fastest and look hardly worse. Otherwise what kernels take alone would choose among plans that differ in
one of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Final

from collage.control.tie_breaking import TieBreaking
from collage.decide.in_place import FedBack, fed_back, renamed
from collage.decide.neighbours import variants_of
from collage.decide.races.going_on import NotRacedError, Race, gone_on
from collage.decide.races.saved_races import EndToEndTimings
from collage_core.candidates.plan import Plan
from collage_core.candidates.pool import CandidatePool

_TIMES: Final = 4
"""Times that further plans may join."""
_NEAR: Final = 1.05
"""Ratio to the fastest plan's steps up to which a plan that is one move away from it is timed."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class WithFeedback:
    """What is known once plans raced.

    Attributes:
        pool: The candidates, with what those that were timed in place take there.
        alike: The same, with the others' costs corrected likewise; see `FedBack`.
        plans: The plans that raced, with these costs.
        timings: How they fared.
        alone_us: What each plan was predicted to take by its kernels measured alone, in microseconds, by name.
    """

    pool: CandidatePool
    alike: CandidatePool
    plans: tuple[Plan, ...]
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
    for left in reversed(range(_TIMES)):
        further = found.worthwhile
        if len(further) < most and found.fastest is not None and found.fastest.key not in looked_around:
            looked_around.add(found.fastest.key)
            further = (*further, *_variants(found, found.fastest, most - len(further)))
        if not further:
            break
        try:
            timings = gone_on(race, found.plans, further, timings, seed=seed, tie_breaking=tie_breaking)
        except NotRacedError:
            break
        alone_us |= {plan.name: plan.predicted_us for plan in further}
        every = [*found.plans, *further]
        found = fed_back(found.pool, every, timings.timed, usual_us, most if left else 0)
    return WithFeedback(pool=found.pool, alike=found.alike, plans=found.plans, timings=timings, alone_us=alone_us)


def _variants(found: FedBack, fastest: Plan, most: int) -> tuple[Plan, ...]:
    """Return plans that are one move away from the fastest, and look hardly worse, if at all."""
    taken = (*found.plans, *found.worthwhile)
    known = {plan.key for plan in taken}
    near = variants_of(found.alike, fastest, _NEAR * fastest.predicted_us)
    return renamed([plan for plan in near if plan.key not in known][:most], taken)
