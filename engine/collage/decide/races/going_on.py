"""Go on with a race: further plans join, and of those that ran only some stay.

Plans that look better by what kernels take in place have to beat what would be kept without them. So they race against
that, and against the single toolchains with which both are compared. The others lost already.

Mixed plans whose order is open run on beside them, or alone if none joins.

What would be kept stays to the end: it has earlier rounds that speak for it, and these count only of plans that run the
last round. If a single toolchain fails that it is compared with, the race so far stands, and those that joined have
lost: beside another, slower one they would prove nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import Protocol

from collage.control.tie_breaking import TieBreaking
from collage.decide.decision import decide
from collage.decide.races.saved_races import EndToEndTimings
from collage_core.candidates.plan import Plan

_LOST = "nothing was left to compare it with"


class NotRacedError(Exception):
    """Raised for plans that do not race, or did not on the machine that is asked about."""


class Race(Protocol):
    """Times plans; see `EndToEndTimer.run`."""

    def __call__(self, plans: Sequence[Plan], *, after: EndToEndTimings, keep: Collection[str]) -> EndToEndTimings:
        """Time plans in rounds that are numbered from the end of another race on.

        Raises:
            NotRacedError: If there is no time for it.
        """


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
        further: Those that join; if there are none, those run on whose order is open.
        timings: The race so far; at least one plan was timed.
        seed: As for `decide`.
        tie_breaking: As for `decide`.

    Raises:
        NotRacedError: If the race does not go on.
    """
    so_far = decide(timings.timed, seed, tie_breaking=tie_breaking)
    kept = {so_far.winner} if further else set()
    matter = {*timings.open, *((so_far.winner, so_far.incumbent, so_far.incumbent_as_called) if further else ())}
    later = race([*(plan for plan in plans if plan.name in matter), *further], after=timings, keep=kept)
    whole = timings.then(later)
    singles = {plan.name for plan in plans if plan.single}
    if not singles.isdisjoint(later.failed):
        lost = {plan.name: f"{_LOST} ({', '.join(singles.intersection(later.failed))} failed)" for plan in further}
        mixed = {name: reason for name, reason in later.failed.items() if name not in singles}
        timed = tuple(each for each in timings.timed if each.name not in mixed)
        return dataclasses.replace(whole, timed=timed, failed={**timings.failed, **lost, **mixed})
    return whole
