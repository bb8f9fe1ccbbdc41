"""Races as they were run on a machine that may be elsewhere: none is run here."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from collage.control.tie_breaking import TieBreaking
from collage.decide.feedback import WithFeedback, with_feedback
from collage.decide.races.saved_races import EndToEndTimings, SavedRaces, distinct, now
from collage_core.candidates.plan import Plan
from collage_core.candidates.pool import CandidatePool


class NotRacedError(Exception):
    """Raised for plans that did not race on the machine."""


class RecordedRaces:
    """What races decided on a machine.

    Args:
        saved: The races that the store has.
    """

    def __init__(self, saved: SavedRaces) -> None:
        self._saved = saved

    def run(self, plans: Sequence[Plan], *, after: EndToEndTimings | None = None) -> EndToEndTimings:
        """Return what came of racing plans.

        Args:
            plans: The plans.
            after: The race that they went on with; None for a new one.

        Raises:
            NotRacedError: If they did not race.
        """
        chosen = distinct(plans)
        name = self._saved.name(chosen, after)
        known = self._saved.get(name)
        if known is None:
            raise NotRacedError
        return self._saved.timings(name, known, chosen, after, now())

    def fed_back(
        self,
        pool: CandidatePool,
        plans: Sequence[Plan],
        timings: EndToEndTimings,
        *,
        usual_us: float | None,
        seed: int,
        tie_breaking: TieBreaking,
    ) -> WithFeedback:
        """Return what is known once plans raced; plans that look better then count if they raced there, too.

        Args:
            pool: The candidates.
            plans: Those that raced.
            timings: How they fared.
            usual_us: See `with_feedback`.
            seed: See `with_feedback`.
            tie_breaking: See `with_feedback`.
        """
        again = functools.partial(
            with_feedback,
            pool,
            plans,
            timings,
            usual_us=usual_us,
            most=self._saved.preset.challengers,
            seed=seed,
            tie_breaking=tie_breaking,
        )
        try:
            return again(self.run)
        except NotRacedError:
            return again(None)
