"""From rules to plans worth timing end to end: candidates are measured and searched, or a file names the plan."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence

from collage.control.choices import GraphChoices
from collage.control.plan_file import PlanFile
from collage.control.plan_of_file import planned
from collage.decide.shortlist import shortlist
from collage.explore.by_options import explore
from collage.explore.exploration import Explored
from collage.explore.fixed_plan import measured_plan
from collage.measure.budget import Budget
from collage.options import OptimizeOptions, Preset
from collage.precision.lower_precision import LowerPrecision
from collage.report.progress import Progress
from collage.resolve.noting import note
from collage.setup.environment import Environment
from collage.setup.phase_clock import PhaseClock
from collage.setup.settings import candidate_bounds
from collage.setup.workload import Workload
from collage_core.candidates.all_proposals import propose_all
from collage_core.candidates.plan import Plan
from collage_core.candidates.proposals import TargetRule

_BUILD_S = 0.2
"""Seconds that building and checking a candidate takes, roughly."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shortlist:
    """Plans that are worth timing end to end.

    Attributes:
        explored: What was measured and found.
        plans: The plans.
        notes: What the user should know about how they were chosen.
    """

    explored: Explored
    plans: tuple[Plan, ...]
    notes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exploring:
    """Finds plans to time.

    Attributes:
        environment: The model, toolchains and cost source.
        options: What to do.
        graph_choices: What the user decided about nodes.
        precision: Kernels of lower precision; None if no error is allowed.
        progress: Receives progress updates.
        clock: Takes the time of each phase.
    """

    environment: Environment[Workload]
    options: OptimizeOptions
    graph_choices: GraphChoices
    precision: LowerPrecision | None
    progress: Progress
    clock: PhaseClock

    def searched(self, rules: Sequence[TargetRule]) -> Shortlist:
        """Measure candidates and search.

        Args:
            rules: The targets with their rules, pins applied.

        Raises:
            NoCoverError: If no plan covers the graph; says why.
            PinError: If a pin is in the way.
        """
        environment = self.environment
        if self.options.budget_s is not None:
            self.progress.message(_allowed(environment.budget, self.options.effective))
        began = time.monotonic()
        explored = explore(
            environment.source,
            environment.pool,
            self._in_own_types(rules),
            self.options,
            self.graph_choices.pins,
            environment.asked.failures,
            self.progress,
            environment.budget.exploring,
        )
        note(environment.toolchains, explored.proposals)
        measuring = environment.source.counts.seconds
        self.clock.add("measure", measuring)
        self.clock.add("search", explored.search_s)
        self.clock.add("candidates", max(0.0, time.monotonic() - began - measuring - explored.search_s))
        precise = self._of_lower_precision(explored)
        plans, said = shortlist(
            precise.explored.pool,
            environment.toolchains.targets(),
            self.options.effective.challengers,
            environment.source,
            self.graph_choices.choices.tie_breaking,
        )
        return Shortlist(explored=precise.explored, plans=(*plans, *precise.plans), notes=(*precise.notes, *said))

    def given(self, rules: Sequence[TargetRule], file: PlanFile) -> Shortlist:
        """Measure the kernels of the plan of a file.

        Args:
            rules: The targets with their rules, pins applied.
            file: The plan.

        Raises:
            CollageError: If the plan does not fit the graph or the targets, or a kernel of it fails.
        """
        environment = self.environment
        graph, pool = environment.graph, environment.pool
        with self.clock.phase("candidates"):
            proposed = propose_all(rules, graph, candidate_bounds(self.options))
            plan = planned(
                file,
                graph,
                environment.toolchains.targets(),
                proposed.by_target.values(),
                dispatch_us=pool.dispatch_us,
                copies=pool.copy_costs,
            )
            self.graph_choices.pins.check(plan)
        with self.clock.phase("measure"):
            explored, plan = measured_plan(plan, proposed, pool, environment.source, self.progress)
        return Shortlist(explored=explored, plans=(plan,))

    def _in_own_types(self, rules: Sequence[TargetRule]) -> Sequence[TargetRule]:
        """Return the rules without those of targets whose regions are chosen under the bound, if others are left."""
        exploring = [rule for rule in rules if not rule.target.is_chosen_by_region]
        return exploring if exploring and not self.graph_choices.pins else rules

    def _of_lower_precision(self, explored: Explored) -> Shortlist:
        """Measure kernels of lower precision where an error is allowed, and return plans that mix precisions."""
        if self.precision is None or self.environment.budget.exploring.is_spent:
            return Shortlist(explored=explored, plans=())
        if self.graph_choices.pins:
            said = "with pins each kernel of lower precision keeps to the bound by itself: none is chosen by region"
            return Shortlist(explored=explored, plans=(), notes=(said,))
        with self.clock.phase("precision"):
            found = self.precision.explore(explored.pool)
        explored = dataclasses.replace(explored, pool=found.pool)
        return Shortlist(explored=explored, plans=found.plans, notes=tuple(found.notes))


def _allowed(budget: Budget, preset: Preset) -> str:
    """Return what a budget allows once the model is prepared, as an estimate."""
    measuring_s = budget.exploring.left_s
    count = int(measuring_s / (preset.protocol.warmup_s + preset.protocol.duration_s + _BUILD_S))
    racing_s = max(0.0, budget.racing.left_s - measuring_s)
    return (
        f"of the budget of {budget.seconds:g} s, {budget.left_s:.0f} s are left: about {count} measurements in "
        f"{measuring_s:.0f} s, then {racing_s:.0f} s for whole plans, the rest to verify; what no plan can do without "
        "is measured in any case"
    )
