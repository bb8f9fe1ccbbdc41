"""`optimize`: find the fastest plan of a model, measured, verified and explained."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import onnx_ir

from collage.build.plan_builder import PlanBuilder
from collage.command_start import command_began
from collage.commands.optimizing.beside_each_other import mixable_rules
from collage.commands.optimizing.optimized import Optimized
from collage.commands.optimizing.origin import origin_of
from collage.control.choices import GraphChoices, UserChoices
from collage.control.plan_file import PlanFile
from collage.control.plan_of_file import planned
from collage.decide.feedback import with_feedback
from collage.decide.kept import Kept, keep_best
from collage.decide.races.end_to_end import EndToEndTimer
from collage.decide.races.saved_races import EndToEndTimings, SavedRaces
from collage.decide.record import record_of
from collage.decide.recording import call_site
from collage.decide.shortlist import shortlist
from collage.decide.two_level import FITNESS_ROUNDS, improved
from collage.disk_space import full_disk_named
from collage.errors import TooInexactError, WrongKernelError, WrongPinError
from collage.explore.by_options import explore
from collage.explore.certificate import certified
from collage.explore.exploration import Explored
from collage.explore.fixed_plan import measured_plan
from collage.measure.budget import Budget
from collage.measure.driver.repeats import repeats_of
from collage.measure.models.preparing import prepared_apart
from collage.options import OptimizeOptions, Preset
from collage.peaks.limits import PlanLimits
from collage.peaks.measured_limits import measured_limits, working_targets
from collage.precision.blame import blamed
from collage.precision.lower_precision import LowerPrecision
from collage.precision.plans.plan_runs import PlanRuns
from collage.process_guard import plugins_guarded
from collage.report.facts.record import Record
from collage.report.progress import Progress, SilentProgress, stages_of
from collage.resolve.noting import note
from collage.setup.environment import Environment
from collage.setup.phase_clock import PhaseClock
from collage.setup.queries import usable_rules
from collage.setup.settings import SetupChoices, candidate_bounds
from collage.setup.workload import Workload
from collage_core.candidates.all_proposals import propose_all
from collage_core.candidates.plan import Plan
from collage_core.candidates.pool import CandidatePool
from collage_core.candidates.proposals import TargetRule
from collage_core.contract import Obstacle
from collage_core.fusion import CandidateKernel
from collage_core.plugin_guards import left_out
from collage_core.registry import Registry
from collage_core.search.two_level import TwoLevelLimits

_KEPT = "What was measured is kept in the tuning database, so run it again, or give it more time with --budget."
_BUILD_S = 0.2
"""Seconds that building and checking a candidate takes, roughly."""
_STAGES: Final = stages_of(
    {
        "preparing the model": 0.04,
        "measuring candidates": 0.56,
        "timing whole plans": 0.31,
        "building and verifying": 0.05,
        "measuring what the machine allows": 0.04,
    }
)
"""The stages of a run with their usual shares of its time.

They are the medians over the models of the suite; of racing, building and verifying only the sum was measured.
"""
_SEARCHES_AGAIN: Final = 3
"""Searches that are repeated without a kernel that makes the plan wrong, or for a smaller error; then the next best
plan is kept.
"""


@plugins_guarded()
def optimize(
    model: str | os.PathLike[str] | onnx_ir.Model,
    options: OptimizeOptions | None = None,
    *,
    progress: Progress | None = None,
    registry: Registry | None = None,
) -> Optimized:
    """Find the fastest plan for a model on this machine.

    Args:
        model: An ONNX file, or a model in memory.
        options: What to do; the defaults if None.
        progress: Receives progress updates.
        registry: The toolchains; those installed if None.

    Raises:
        CollageError: If the model cannot be used, no toolchain runs all of it, or the result is wrong; one message.
    """
    options = options or OptimizeOptions()
    progress = progress or SilentProgress()
    progress.stage(_STAGES["preparing the model"])
    clock = PhaseClock()
    budget = Budget.begin(options.budget_s, began=command_began())
    choices = UserChoices.read(options)
    workload = functools.partial(
        Workload,
        model,
        input_shapes=options.input_shapes,
        inputs=options.inputs,
        calibration=options.calibration,
        labelled=options.labelled,
        seed=options.seed,
        prepare=functools.partial(prepared_apart, budget=budget),
    )
    opening = Environment.open(workload, SetupChoices.of(options, budget), registry=registry, progress=progress)
    try:
        with contextlib.ExitStack() as stack:
            finishing = stack.enter_context(budget.enforced("optimizing the model", _KEPT))
            with clock.phase("prepare"):
                environment = stack.enter_context(opening)
            stack.enter_context(full_disk_named(environment.graph, environment.toolchains.folder))
            origin = origin_of(model, options) if registry is None else None
            graph_choices = choices.over(environment.graph, environment.toolchains.targets())
            return _Optimization(environment, options, graph_choices, progress, clock, origin, finishing).run()
    finally:
        progress.done()


class _Optimization:
    """One run of `optimize`: its steps, in order."""

    def __init__(
        self,
        environment: Environment[Workload],
        options: OptimizeOptions,
        graph_choices: GraphChoices,
        progress: Progress,
        clock: PhaseClock,
        origin: str | None,
        finishing: Callable[[], None],
    ) -> None:
        self._environment = environment
        self._options = options
        self._graph_choices = graph_choices
        self._progress = progress
        self._clock = clock
        self._origin = origin
        self._finishing = finishing
        self._given = graph_choices.choices.given
        self._tie_breaking = graph_choices.choices.tie_breaking
        self._pool = environment.pool
        self._builder = PlanBuilder(environment, progress)
        self._notes = [str(clash) for clash in environment.toolchains.clashes]
        if (fleet := environment.toolchains.fleet) is not None:
            self._notes += [
                f"candidates were measured by {options.runner}, {fleet.measurer.width} at once",
                *fleet.notes,
            ]
        if options.percentile != 50.0:
            self._notes.append(
                f"plans are chosen by percentile {options.percentile:g} of their latency, not the median"
            )
        if sizes := environment.graph.typical_sizes:
            said = ", ".join(f"{name}={size}" for name, size in sizes.items())
            self._notes.append(f"its sizes vary: kernels are measured with {said}")
            if turns := len(environment.workload.sizes_in_turn):
                self._notes.append(f"whole plans are timed by `run`, with {turns} sizes near these in turn")
        self._notes += [figures.said for figures in environment.toolchains.device_figures if figures.said]
        self._left_out: list[str] = []
        self._trace: Mapping[str, Any] | None = None
        self._alone_us: dict[str, float] = {}
        self._explored_at = 0.0
        allowed, metric = options.error_allowed, graph_choices.choices.metric
        self._precision: LowerPrecision | None = None
        if allowed is not None:
            self._precision = LowerPrecision(
                environment, PlanRuns(environment, self._builder), allowed, metric, options.ranges, progress
            )

    def run(self) -> Optimized:
        """Propose, explore, race, build, decide and record; once more without a kernel that makes the plan wrong."""
        with self._clock.phase("candidates"):
            rules = self._graph_choices.rules(usable_rules(self._environment.asked))
            if self._options.beside_others:
                rules, note = mixable_rules(rules)
                self._notes += [note] if note else []
        notes = tuple(self._notes)
        while True:
            self._progress.stage(_STAGES["measuring candidates"])
            try:
                return self._searched(rules)
            except TooInexactError as error:
                if self._given is not None or self._precision is None:
                    raise
                self._precision.stay_below(error)
                self._left_out.append(f"{error}; searched again for one that stays further below")
                self._notes = [*notes, *self._left_out]
                self._progress.message(self._left_out[-1])
            except WrongKernelError as error:
                if self._given is not None:
                    raise
                self._left_out.append(f"{error}; searched again without it")
                self._notes = [*notes, *self._left_out]
                which = f"{len(self._left_out)} of {_SEARCHES_AGAIN}"
                self._progress.message(f"{error}; searching again without it ({which})")

    def _found_wrong(self, error: WrongKernelError | TooInexactError) -> None:
        """Raise unless the next best plan may be kept: what the user chose is not replaced, and searches end."""
        if isinstance(error, WrongKernelError) and (pin := self._graph_choices.pins.pin_of(error.nodes)) is not None:
            raise WrongPinError(pin.text, error) from error
        if self._given is not None:
            raise error
        if not self._environment.budget.allows_again(self._explored_at):
            self._notes.append("the budget left no time to search again without what is wrong")
        elif isinstance(error, TooInexactError) and (
            self._precision is None or error.plan not in self._precision.errors
        ):
            return  # the exploration, which knows nothing of the bound, would find it again
        elif len(self._left_out) < _SEARCHES_AGAIN:
            raise error

    def _searched(self, rules: Sequence[TargetRule]) -> Optimized:
        """Explore, race, build, decide and record.

        Raises:
            WrongKernelError: If a kernel is to be left out.
        """
        explored, plans = self._explored(rules) if self._given is None else self._forced(rules, self._given)
        if self._options.search == "ilp" and self._given is None:
            self._notes.append(certified(explored.pool, explored.result.total_us))
        self._progress.stage(_STAGES["timing whole plans"])
        with self._clock.phase("refine"):
            timings = self._timer(self._options.effective).run(plans)
            self._finishing()
            if self._given is None:
                explored, plans, timings = self._fed_back(explored, plans, timings)
            if self._options.search == "two-level" and self._given is None:
                explored, plans, timings = self._changed(explored, plans, timings)
            self._finishing()
            self._progress.stage(_STAGES["building and verifying"])
            kept = self._kept(plans, timings, explored.pool)
        with self._clock.phase("peaks"):
            limits = self._limits(explored, kept)
        precision = self._precision
        if precision is not None and precision.silence:
            self._notes.append(precision.silence)
        record = record_of(
            self._environment,
            self._options,
            explored,
            plans,
            kept,
            limits,
            method=explored.result.method if self._trace is None else "two-level",
            seconds=self._clock.total(),
            alone_us=self._alone_us,
            notes=self._notes,
            precision={} if precision is None else blamed(kept.assembled.plan, precision.sensitivities),
            metric=None if precision is None else precision.facts,
            ranges=self._options.ranges if self._given is None else self._given.ranges,
            interval=self._interval,
        )
        origin = self._origin if self._is_final(explored, record) else None
        return Optimized(record=record, assembled=kept.assembled, pool=explored.pool, trace=self._trace, origin=origin)

    def _interval(self, kernel: CandidateKernel, cost_us: float) -> tuple[float, float] | None:
        """Return an interval around a kernel's cost; see `Repeats.interval`."""
        key = self._environment.source.record_key(kernel)
        return repeats_of(self._environment.toolchains.database, key).interval(cost_us)

    def _is_final(self, explored: Explored, record: Record) -> bool:
        """Return whether nothing failed that the next run would try again: the cause may have passed by then."""
        environment = self._environment
        without_targets = [status.obstacle for status in environment.toolchains.statuses if status.unusable]
        return not (
            left_out()
            or environment.asked.failures
            or explored.failures
            or environment.source.transient
            or any(contender.failed for contender in record.comparison.contenders)
            or Obstacle.OTHER in without_targets
        )

    def _explored(self, rules: Sequence[TargetRule]) -> tuple[Explored, list[Plan]]:
        """Measure and search; the plans are those that are worth timing end to end."""
        if self._options.budget_s is not None:
            self._progress.message(_allowed(self._environment.budget, self._options.effective))
        began = time.monotonic()
        environment = self._environment
        explored = explore(
            environment.source,
            environment.pool,
            self._in_own_types(rules),
            self._options,
            self._graph_choices.pins,
            environment.asked.failures,
            self._progress,
            environment.budget.exploring,
        )
        note(environment.toolchains, explored.proposals)
        measuring = self._environment.source.counts.seconds
        self._clock.add("measure", measuring)
        self._clock.add("search", explored.search_s)
        self._clock.add("candidates", max(0.0, time.monotonic() - began - measuring - explored.search_s))
        targets = self._environment.toolchains.targets()
        most = self._options.effective.challengers
        explored, precise = self._of_lower_precision(explored)
        self._explored_at = self._environment.budget.clock()
        plans, said = shortlist(explored.pool, targets, most, self._environment.source, self._tie_breaking)
        self._notes += said
        return explored, [*plans, *precise]

    def _in_own_types(self, rules: Sequence[TargetRule]) -> Sequence[TargetRule]:
        """Return the rules without those of targets whose regions are chosen under the bound, if others are left."""
        exploring = [rule for rule in rules if not rule.target.is_chosen_by_region]
        return exploring if exploring and not self._graph_choices.pins else rules

    def _of_lower_precision(self, explored: Explored) -> tuple[Explored, tuple[Plan, ...]]:
        """Measure kernels of lower precision where an error is allowed, and return plans that mix precisions."""
        if self._precision is None or self._environment.budget.exploring.is_spent:
            return explored, ()
        if self._graph_choices.pins:
            self._notes.append(
                "with pins each kernel of lower precision keeps to the bound by itself: none is chosen by region"
            )
            return explored, ()
        with self._clock.phase("precision"):
            found = self._precision.explore(explored.pool)
        self._notes += found.notes
        return dataclasses.replace(explored, pool=found.pool), found.plans

    def _forced(self, rules: Sequence[TargetRule], given: PlanFile) -> tuple[Explored, list[Plan]]:
        """Measure the kernels of the plan of a file."""
        graph, pool = self._environment.graph, self._pool
        with self._clock.phase("candidates"):
            proposed = propose_all(rules, graph, candidate_bounds(self._options))
            plan = planned(
                given,
                graph,
                self._environment.toolchains.targets(),
                proposed.by_target.values(),
                dispatch_us=pool.dispatch_us,
                copies=pool.copy_costs,
            )
            self._graph_choices.pins.check(plan)
        with self._clock.phase("measure"):
            explored, plan = measured_plan(plan, proposed, pool, self._environment.source, self._progress)
        return explored, [plan]

    def _timer(self, preset: Preset) -> EndToEndTimer:
        workload, toolchains = self._environment.workload, self._environment.toolchains
        budget = self._environment.budget.racing
        return EndToEndTimer(
            saved=SavedRaces.under(
                self._options,
                database=toolchains.database,
                workload=workload,
                host=toolchains.host,
                threads=toolchains.threads,
                tolerance=self._environment.source.settings.inexact_tolerance.relative,
                plugins=toolchains.plugins,
                preset=preset,
                budget_s=budget.seconds,
            ),
            folder=toolchains.folder,
            inputs=lambda: workload.documents_in_turn(toolchains.folder, toolchains.store),
            build=self._builder.build,
            progress=self._progress,
            retry_failed=toolchains.retry_failed,
            budget=budget,
        )

    def _fed_back(
        self, explored: Explored, plans: Sequence[Plan], timings: EndToEndTimings
    ) -> tuple[Explored, list[Plan], EndToEndTimings]:
        """Take what kernels take in place for their costs, and race what looks better then."""
        preset = self._options.effective
        found = with_feedback(
            explored.pool,
            plans,
            timings,
            None if self._environment.budget.racing.is_spent else self._timer(preset).run,
            usual_us=self._environment.source.usual_calibration_us,
            most=preset.challengers,
            seed=self._options.seed,
            tie_breaking=self._tie_breaking,
        )
        self._alone_us = dict(found.alone_us)
        return dataclasses.replace(explored, pool=found.pool), list(found.plans), found.timings

    def _changed(
        self, explored: Explored, plans: Sequence[Plan], timings: EndToEndTimings
    ) -> tuple[Explored, list[Plan], EndToEndTimings]:
        """Change plans by moves, each judged end to end: the second level."""
        preset, budget = self._options.effective, self._environment.budget.racing
        better = improved(
            explored.pool,
            plans,
            timings,
            explored.proposals,
            judge=self._timer(dataclasses.replace(preset, rounds=FITNESS_ROUNDS)).run,
            race=self._timer(preset).run,
            measure=lambda kernel: self._environment.source.measure([kernel]),
            limits=TwoLevelLimits(evaluations=preset.evaluations, seed=self._options.seed),
            stop=lambda: budget.is_spent,
            tie_breaking=self._tie_breaking,
        )
        self._notes.append(better.note)
        self._trace = better.trace
        return dataclasses.replace(explored, pool=better.pool), list(better.plans), better.timings

    def _limits(self, explored: Explored, kept: Kept) -> PlanLimits | None:
        """Estimate what the machine allows; the quick preset leaves it at NumPy's products and what is known."""
        plan, in_place = kept.assembled.plan, kept.verified.measured_us
        times = [
            in_place.get(call_site(number)) or plan.cost_of[kernel.sub_graph.nodes]
            for number, kernel in enumerate(plan.kernels)
        ]
        if self._environment.budget.is_spent:
            self._notes.append("what the machine allows was not looked at: the budget was spent")
            return None
        self._progress.stage(_STAGES["measuring what the machine allows"])
        targets = () if self._options.preset == "quick" else working_targets(explored.pool)
        choices = SetupChoices.of(self._options)
        return measured_limits(plan, times, self._environment.toolchains, choices, targets)

    def _kept(self, plans: Sequence[Plan], timings: EndToEndTimings, pool: CandidatePool) -> Kept:
        precision = self._precision
        kept = keep_best(
            plans,
            timings,
            self._builder,
            seed=self._options.seed,
            tie_breaking=self._tie_breaking,
            wrong=self._found_wrong,
            accept=None if precision is None else functools.partial(precision.accept, pool=pool),
        )
        self._notes += kept.notes
        if self._given is None:
            return kept
        reason = f"the plan of {self._given.source} was asked for; no other was tried"
        return dataclasses.replace(kept, decision=dataclasses.replace(kept.decision, reason=reason))


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
