"""Time whole plans end to end, and what looks better by what was learnt of their kernels."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from collage.build.plan_builder import PlanBuilder
from collage.control.tie_breaking import TieBreaking
from collage.decide.feedback import with_feedback
from collage.decide.races.end_to_end import EndToEndTimer
from collage.decide.races.going_on import NotRacedError
from collage.decide.races.saved_races import EndToEndTimings, SavedRaces
from collage.decide.two_level import FITNESS_ROUNDS, improved
from collage.explore.exploration import Explored
from collage.options import OptimizeOptions, Preset
from collage.report.progress import Progress
from collage.setup.environment import Environment
from collage.setup.workload import Workload
from collage_core.candidates.plan import Plan
from collage_core.search.two_level import TwoLevelLimits


@dataclasses.dataclass(frozen=True, kw_only=True)
class Raced:
    """Plans that were timed.

    Attributes:
        explored: What they were chosen from, with what is known of kernels now.
        plans: The plans.
        timings: How they fared.
        alone_us: What each was predicted to take by its kernels measured alone, in microseconds, by name.
        trace: Every plan timed by a two-level search, as JSON; None for other searches.
        notes: What the user should know about it.
    """

    explored: Explored
    plans: Sequence[Plan]
    timings: EndToEndTimings
    alone_us: Mapping[str, float] = dataclasses.field(default_factory=dict)
    trace: Mapping[str, Any] | None = None
    notes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Racing:
    """Times plans.

    Attributes:
        environment: The model, toolchains and cost source.
        options: What to do.
        builder: Builds plans.
        tie_breaking: As for `decide`.
        progress: Receives progress updates.
    """

    environment: Environment[Workload]
    options: OptimizeOptions
    builder: PlanBuilder
    tie_breaking: TieBreaking
    progress: Progress

    def timed(self, explored: Explored, plans: Sequence[Plan], *, mixes_wait: bool) -> Raced:
        """Time plans.

        Args:
            explored: What was found.
            plans: The plans.
            mixes_wait: As of `race`, if it is gone on with.
        """
        timings = self._timer(self.options.effective).run(plans, mixes_wait=mixes_wait)
        return Raced(explored=explored, plans=plans, timings=timings)

    def gone_on(self, raced: Raced) -> Raced:
        """Race what looks better by what kernels take in place; in a two-level search, change plans as well."""
        raced = self._fed_back(raced)
        return self._changed(raced) if self.options.search == "two-level" else raced

    def _fed_back(self, raced: Raced) -> Raced:
        """Take what kernels take in place for their costs, and race what looks better then, if there is time."""
        preset = self.options.effective
        timer, budget = self._timer(preset), self.environment.budget.racing

        def race(plans: Sequence[Plan], *, after: EndToEndTimings, keep: Collection[str]) -> EndToEndTimings:
            if timer.left_s(after) <= 0 or budget.left_s <= 0 or budget.left_s < raced.timings.took_s:
                raise NotRacedError
            return timer.run(plans, after=after, keep=keep)

        fed = with_feedback(
            raced.explored.pool,
            raced.plans,
            raced.timings,
            race,
            usual_us=self.environment.source.usual_calibration_us,
            most=preset.challengers,
            seed=self.options.seed,
            tie_breaking=self.tie_breaking,
        )
        result = raced.explored.result
        if fed.found.pool.costs.in_place_us:  # plans are predicted by these costs now, so bounds go by them, too
            result = dataclasses.replace(fed.found.alike.engine().run(), method=result.method)
        return dataclasses.replace(
            raced,
            explored=dataclasses.replace(raced.explored, pool=fed.found.pool, result=result),
            plans=fed.found.plans,
            timings=fed.timings,
            alone_us=fed.alone_us,
        )

    def _changed(self, raced: Raced) -> Raced:
        """Change plans by moves, each judged end to end: the second level."""
        preset, budget = self.options.effective, self.environment.budget.racing
        better = improved(
            raced.explored.pool,
            raced.plans,
            raced.timings,
            raced.explored.proposals,
            judge=self._timer(dataclasses.replace(preset, rounds=FITNESS_ROUNDS)).run,
            race=self._timer(preset).run,
            measure=lambda kernel: self.environment.source.measure([kernel]),
            limits=TwoLevelLimits(evaluations=preset.evaluations, seed=self.options.seed),
            stop=lambda: budget.is_spent,
            tie_breaking=self.tie_breaking,
        )
        return dataclasses.replace(
            raced,
            explored=dataclasses.replace(raced.explored, pool=better.pool),
            plans=better.plans,
            timings=better.timings,
            trace=better.trace,
            notes=(*raced.notes, better.note),
        )

    def _timer(self, preset: Preset) -> EndToEndTimer:
        workload, toolchains = self.environment.workload, self.environment.toolchains
        budget = self.environment.budget.racing
        return EndToEndTimer(
            saved=SavedRaces.under(
                self.options,
                database=toolchains.database,
                workload=workload,
                host=toolchains.host,
                threads=toolchains.threads,
                tolerance=self.environment.source.settings.inexact_tolerance.relative,
                plugins=toolchains.plugins,
                variant=self.environment.source.variant,
                preset=preset,
            ),
            folder=toolchains.folder,
            inputs=lambda: workload.documents_in_turn(toolchains.folder, toolchains.store),
            build=self.builder.build,
            progress=self.progress,
            retry_failed=toolchains.retry_failed,
            budget=budget,
        )
