"""`optimize`: find the fastest plan of a model, measured, verified and explained."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from collections.abc import Callable, Sequence
from typing import Final

import onnx_ir

from collage.build.plan_builder import PlanBuilder
from collage.command_start import command_began
from collage.commands.optimizing.beside_each_other import mixable_rules
from collage.commands.optimizing.exploring import Exploring
from collage.commands.optimizing.optimized import Optimized
from collage.commands.optimizing.origin import origin_of
from collage.commands.optimizing.racing import Raced, Racing
from collage.control.choices import GraphChoices, UserChoices
from collage.decide.kept import Kept, keep_best
from collage.decide.record import record_of
from collage.disk_space import full_disk_named
from collage.errors import TooInexactError, WrongKernelError, WrongPinError
from collage.explore.certificate import certified
from collage.explore.exploration import Explored
from collage.measure.budget import Budget
from collage.measure.driver.repeats import repeats_of
from collage.measure.models.preparing import prepared_apart
from collage.options import OptimizeOptions
from collage.peaks.limits import PlanLimits
from collage.peaks.measured_limits import measured_limits, working_targets
from collage.precision.blame import blamed
from collage.precision.lower_precision import LowerPrecision
from collage.precision.plans.plan_runs import PlanRuns
from collage.process_guard import plugins_guarded
from collage.report.facts.record import Record
from collage.report.progress import Progress, SilentProgress, stages_of
from collage.setup.environment import Environment
from collage.setup.phase_clock import PhaseClock
from collage.setup.queries import usable_rules
from collage.setup.settings import SetupChoices
from collage.setup.workload import Workload
from collage_core.candidates.proposals import TargetRule
from collage_core.contract import Obstacle
from collage_core.fusion import CandidateKernel
from collage_core.passes.call_sites import site_name
from collage_core.plugin_guards import left_out
from collage_core.registry import Registry

_KEPT = "What was measured is kept in the tuning database, so run it again, or give it more time with --budget."
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
        self._explored_at = 0.0
        allowed, metric = options.error_allowed, graph_choices.choices.metric
        self._precision: LowerPrecision | None = None
        if allowed is not None:
            self._precision = LowerPrecision(
                environment, PlanRuns(environment, self._builder), allowed, metric, options.ranges, progress
            )
        self._exploring = Exploring(
            environment=environment,
            options=options,
            graph_choices=graph_choices,
            precision=self._precision,
            progress=progress,
            clock=clock,
        )
        self._racing = Racing(
            environment=environment,
            options=options,
            builder=self._builder,
            tie_breaking=self._tie_breaking,
            progress=progress,
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
        given = self._given
        found = self._exploring.searched(rules) if given is None else self._exploring.given(rules, given)
        self._explored_at = self._environment.budget.clock()
        self._notes += found.notes
        if self._options.search == "ilp" and given is None:
            pool = found.explored.pool  # where lower precision is tried, it has more than the search had
            self._notes.append(certified(pool, pool.engine().run().total_us))
        self._progress.stage(_STAGES["timing whole plans"])
        with self._clock.phase("refine"):
            raced = self._racing.timed(found.explored, found.plans, mixes_wait=given is None)
            self._finishing()
            if given is None:
                raced = self._racing.gone_on(raced)
            self._notes += raced.notes
            self._finishing()
            self._progress.stage(_STAGES["building and verifying"])
            kept = self._kept(raced)
        explored = raced.explored
        with self._clock.phase("peaks"):
            limits = self._limits(explored, kept)
        precision = self._precision
        if precision is not None and precision.silence:
            self._notes.append(precision.silence)
        record = record_of(
            self._environment,
            self._options,
            explored,
            raced.plans,
            kept,
            limits,
            method=explored.result.method if raced.trace is None else "two-level",
            seconds=self._clock.total(),
            alone_us=raced.alone_us,
            notes=self._notes,
            precision={} if precision is None else blamed(kept.assembled.plan, precision.sensitivities),
            metric=None if precision is None else precision.facts,
            ranges=self._options.ranges if given is None else given.ranges,
            interval=self._interval,
        )
        origin = self._origin if self._is_final(explored, record) else None
        return Optimized(record=record, assembled=kept.assembled, pool=explored.pool, trace=raced.trace, origin=origin)

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

    def _limits(self, explored: Explored, kept: Kept) -> PlanLimits | None:
        """Estimate what the machine allows; the quick preset leaves it at NumPy's products and what is known."""
        plan, in_place = kept.assembled.plan, kept.verified.measured_us
        times = [
            in_place.get(site_name(number)) or plan.cost_of[kernel.sub_graph.nodes]
            for number, kernel in enumerate(plan.kernels)
        ]
        budget = self._environment.budget
        if budget.is_spent:
            self._notes.append("what the machine allows was not looked at: the budget was spent")
            return None
        self._progress.stage(_STAGES["measuring what the machine allows"])
        targets = () if self._options.preset == "quick" else working_targets(explored.pool)
        choices = SetupChoices.of(self._options)
        self._progress.phase("measuring the machine's peaks")
        return measured_limits(plan, times, self._environment.toolchains, choices, targets, left_s=budget.left_s)

    def _kept(self, raced: Raced) -> Kept:
        precision = self._precision
        kept = keep_best(
            raced.plans,
            raced.timings,
            self._builder,
            seed=self._options.seed,
            tie_breaking=self._tie_breaking,
            wrong=self._found_wrong,
            accept=None if precision is None else functools.partial(precision.accept, pool=raced.explored.pool),
        )
        self._notes += kept.notes
        if self._given is None:
            return kept
        reason = f"the plan of {self._given.source} was asked for; no other was tried"
        return dataclasses.replace(kept, decision=dataclasses.replace(kept.decision, reason=reason))
