"""Go on with a race: further plans join, and of those that ran only some stay.

Plans that look better by what kernels take in place have to beat what would be kept without them. So they race against
that, and against the single toolchains with which both are compared. The others lost already.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from collage.control.tie_breaking import TieBreaking
from collage.decide.decision import decide
from collage.decide.races.saved_races import EndToEndTimings
from collage_core.candidates.plan import Plan


class Race(Protocol):
    """Times plans; see `EndToEndTimer.run`."""

    def __call__(self, plans: Sequence[Plan], *, after: EndToEndTimings | None) -> EndToEndTimings:
        """Time plans in rounds that are numbered from the end of another race on."""


def gone_on(
    race: Race,
    plans: Sequence[Plan],
    further: Sequence[Plan],
    timings: EndToEndTimings,
    *,
    seed: int,
    tie_breaking: TieBreaking | None = None,
) -> EndToEndTimings:
    """Race further plans against those that matter of a race, and return the timings of all.

    Args:
        race: Times plans.
        plans: Those that ran.
        further: Those that join.
        timings: The race so far; at least one plan was timed.
        seed: As for `decide`.
        tie_breaking: As for `decide`.
    """
    so_far = decide(timings.timed, seed, tie_breaking=tie_breaking)
    matter = {so_far.winner, so_far.incumbent, so_far.incumbent_as_called}
    later = race([*(plan for plan in plans if plan.name in matter), *further], after=timings)
    return timings.then(later)
