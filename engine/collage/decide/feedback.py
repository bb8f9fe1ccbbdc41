"""Take what kernels take in place for their costs, and race what looks better then."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from collage.control.tie_breaking import TieBreaking
from collage.decide.in_place import fed_back
from collage.decide.races.going_on import Race, gone_on
from collage.decide.races.saved_races import EndToEndTimings
from collage_core.candidates.plan import Plan
from collage_core.candidates.pool import CandidatePool


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
    race: Race | None,
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
        race: Times plans; None where there is no time for further ones.
        usual_us: What the calibration kernel usually takes on the machine; None if it never ran.
        most: Most further plans.
        seed: As for `decide`.
        tie_breaking: As for `decide`.
    """
    alone_us = {plan.name: plan.predicted_us for plan in plans}
    found = fed_back(pool, plans, timings.timed, usual_us, most)
    if not found.worthwhile or race is None:
        return WithFeedback(pool=found.pool, alike=found.alike, plans=found.plans, timings=timings, alone_us=alone_us)
    alone_us |= {plan.name: plan.predicted_us for plan in found.worthwhile}
    every = [*found.plans, *found.worthwhile]
    timings = gone_on(race, found.plans, found.worthwhile, timings, seed=seed, tie_breaking=tie_breaking)
    found = fed_back(found.pool, every, timings.timed, usual_us, 0)
    return WithFeedback(pool=found.pool, alike=found.alike, plans=found.plans, timings=timings, alone_us=alone_us)
