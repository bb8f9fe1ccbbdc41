"""Go on with a race: further plans join, and of those that ran only some stay.

Plans that look better by what kernels take in place have to beat what would be kept without them. So they race against
that, and against the single toolchains with which both are compared. If what would be kept is faster than these by far,
they do not run again: it ran beside them, and so tells what the others take relative to them (`Ratios`).

Mixed plans whose order is open run on beside them, or alone if none joins.

What would be kept stays to the end: it has earlier rounds that speak for it, and these count only of plans that run the
last round. If a single toolchain fails that it is compared with, the race so far stands, and those that joined have
lost: beside another, slower one they would prove nothing. If it fails itself and no single toolchain runs, nothing
links those that joined to these, and `decide` leaves them out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import Protocol

from collage.control.tie_breaking import TieBreaking
from collage.decide.decision import Decision, decide
from collage.decide.races.saved_races import EndToEndTimings
from collage.decide.races.staying import FAR_SLOWER
from collage.measure.statistics import Interval
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
    singles = {plan.name for plan in plans if plan.single}
    kept = {so_far.winner} if further else set()
    beside = set() if _is_far_ahead(so_far) or not further else {so_far.incumbent, so_far.incumbent_as_called}
    matter = {*timings.open, *kept, *beside}
    later = race([*(plan for plan in plans if plan.name in matter), *further], after=timings, keep=kept)
    whole = timings.then(later)
    if not singles.isdisjoint(later.failed):
        lost = {plan.name: f"{_LOST} ({', '.join(singles.intersection(later.failed))} failed)" for plan in further}
        mixed = {name: reason for name, reason in later.failed.items() if name not in singles}
        timed = tuple(each for each in timings.timed if each.name not in mixed)
        return dataclasses.replace(whole, timed=timed, failed={**timings.failed, **lost, **mixed})
    return whole


def _is_far_ahead(so_far: Decision) -> bool:
    """Return whether what would be kept is faster than the incumbent by `FAR_SLOWER`, however it is called."""
    ratios = [so_far.ratios[so_far.winner]]
    if so_far.incumbent_as_called:
        ratios.append(so_far.called.get(so_far.winner, Interval(1.0, 1.0, 1.0)))
    return all(ratio.high * FAR_SLOWER <= 1.0 for ratio in ratios)
