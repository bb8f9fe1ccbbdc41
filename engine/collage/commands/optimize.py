"""`optimize`: from a model to the fastest plan, measured, verified and explained."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import importlib.metadata
import json
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir

from collage.build.assemble import Assembled, assemble
from collage.build.verify import Verified, verify
from collage.commands.optimized import Optimized
from collage.control.choices import GraphChoices, UserChoices
from collage.control.plan_file import PlanFile
from collage.control.tie_breaking import break_ties
from collage.decide.compatible_sets import compatible_set_facts, pairs_apart
from collage.decide.decision import Decision, decide
from collage.decide.end_to_end import EndToEndTimer, EndToEndTimings
from collage.decide.recording import comparison, device_copies, device_facts, regions, toolchain_facts
from collage.decide.shortlist import mixes, singles
from collage.decide.two_level import FITNESS_ROUNDS, improved
from collage.errors import PlanBuildError, VerificationError
from collage.explore.certificate import certified
from collage.explore.exhaustive import Explored, Explorer
from collage.explore.fixed_plan import measured_plan, planned, proposed
from collage.explore.lazy import LazyExplorer
from collage.measure.driver.source import MeasuringCostSource
from collage.options import OptimizeOptions, Preset
from collage.prepare.validity import blamed_on
from collage.report.facts.record import Record, SearchFacts
from collage.report.progress import Progress, SilentProgress
from collage.setup.dispatch import dispatch_us
from collage.setup.environment import Environment
from collage.setup.facts import host_facts
from collage.setup.phase_clock import PhaseClock
from collage.setup.queries import Asked, ask_targets, usable_rules
from collage.setup.settings import candidate_bounds, measure_settings
from collage.setup.targets import Selection, check_reference
from collage.setup.workload import Workload
from collage_core.candidates.explanation import refusals
from collage_core.candidates.plan import Plan
from collage_core.candidates.pool import CandidatePool
from collage_core.candidates.refusals import TargetFailure
from collage_core.errors import CollageError, NoCoverError
from collage_core.registry import Registry
from collage_core.search.two_level import TwoLevelLimits


def optimize(
    model: str | os.PathLike[str] | onnx_ir.Model,
    options: OptimizeOptions | None = None,
    *,
    progress: Progress | None = None,
    registry: Registry | None = None,
) -> Optimized:
    """Finds the fastest plan for a model on this machine.

    Args:
        model: An ONNX file, or a model in memory.
        options: What to do; the defaults if None.
        progress: Is told what happens.
        registry: The toolchains; those installed if None.

    Raises:
        CollageError: If the model cannot be used, no toolchain runs all of it, or the result is wrong; one message.
    """
    options = options or OptimizeOptions()
    progress = progress or SilentProgress()
    clock = PhaseClock()
    selection = Selection.parse(options.toolchains, options.exclude, inexact=options.max_error is not None)
    registry = registry or Registry.discover()
    selection.toolchains(registry)  # what is misspelt is said before any work
    check_reference(options.reference, registry)
    choices = UserChoices.read(options)
    try:
        with clock.phase("prepare"):
            progress.phase("preparing the model")
            workload = Workload(model, input_shapes=options.input_shapes, inputs=options.inputs, seed=options.seed)
            progress.phase("asking toolchains")
            environment = Environment(
                selection, tuning_db=options.tuning_db, threads=options.threads, registry=registry
            )
        with environment, blamed_on(workload.graph.model):
            graph_choices = choices.over(workload.graph, environment.targets())
            return _Optimization(workload, environment, options, progress, clock, graph_choices).run()
    finally:
        progress.done()


class _Optimization:
    """One run of `optimize`: what its steps share."""

    def __init__(
        self,
        workload: Workload,
        environment: Environment,
        options: OptimizeOptions,
        progress: Progress,
        clock: PhaseClock,
        graph_choices: GraphChoices,
    ) -> None:
        self._graph_choices = graph_choices
        self._choices = graph_choices.choices
        self._workload = workload
        self._environment = environment
        self._options = options
        self._progress = progress
        self._clock = clock
        self._preset = options.effective
        self._targets = environment.targets()
        self._built: dict[str, Assembled] = {}
        self._notes: list[str] = []
        self._trace: Mapping[str, Any] | None = None
        self._fallback = environment.fallback(workload.graph, options.reference)
        self._source = MeasuringCostSource(
            pool=environment.pool,
            capture=workload.capture(environment.store, self._fallback),
            database=environment.database,
            host=environment.host,
            settings=measure_settings(options, environment.threads),
            warm=environment.warm_devices(workload.graph),
        )
        self._notes += [str(clash) for clash in environment.clashes]
        self._notes += [figures.said for figures in environment.device_figures if figures.said]
        loop_us = dispatch_us(environment.database, environment.host)
        self._pool = CandidatePool(workload.graph, self._source, loop_us, environment.copy_costs())

    def run(self) -> Optimized:
        """All phases."""
        with self._clock.phase("candidates"):
            asked = ask_targets(self._workload.graph, self._environment, self._progress)
            asked = dataclasses.replace(asked, rules=self._graph_choices.rules(usable_rules(asked)))
        if self._choices.given is not None:
            explored, plans = self._forced(asked, self._choices.given)
            failures = asked.failures
        else:
            explored, failures = self._explore(asked)
            plans = self._shortlist()
        with self._clock.phase("refine"):
            timings = self._timer(self._preset).run(plans)
            if self._options.search == "two-level" and self._choices.given is None:
                plans, timings = self._changed(plans, timings, explored)
            timings, decision, assembled, verified = self._sound(plans, timings)
        if self._options.search == "ilp" and self._choices.given is None:
            self._notes.append(certified(self._pool, explored.result.total_us))
        record = self._record(explored, failures, plans, timings, decision, assembled, verified)
        return Optimized(record=record, assembled=assembled, pool=self._pool, trace=self._trace)

    def _tolerance(self, plan: Plan) -> float:
        limits = [self._source.settings.limits(kernel.target) for kernel in plan.kernels]
        return max((limit.tolerance.relative for limit in limits), default=self._options.tolerance)

    # Phase 3

    def _explorer(self) -> type[Explorer]:
        return LazyExplorer if self._options.search in ("lazy", "two-level") else Explorer

    def _explore(self, asked: Asked) -> tuple[Explored, tuple[TargetFailure, ...]]:
        """Measures and searches; also which targets failed so far."""
        began = time.monotonic()
        explorer = self._explorer()(
            self._pool,
            asked.rules,
            self._source,
            preset=self._preset,
            bounds=candidate_bounds(self._options),
            progress=self._progress,
            budget_s=self._options.budget_s,
        )
        try:
            explored = explorer.run()
        except NoCoverError as error:
            names = tuple(self._workload.graph.names[index] for index in error.nodes)
            why = self._why_uncovered(explorer, error, (*asked.failures, *explorer.failures))
            said = refusals(self._pool, explorer.proposals.values())
            if error.stuck and (apart := pairs_apart(self._pool)):
                raise error.explained((*why, *apart), names) from error
            raise self._graph_choices.pins.explained(error.explained(why, names), said) from error
        measuring = self._source.counts.seconds
        self._clock.add("measure", measuring)
        self._clock.add("search", explored.search_s)
        self._clock.add("candidates", max(0.0, time.monotonic() - began - measuring - explored.search_s))
        return explored, (*asked.failures, *explorer.failures)

    def _why_uncovered(
        self, explorer: Explorer, error: NoCoverError, failures: Sequence[TargetFailure]
    ) -> tuple[str, ...]:
        graph = self._workload.graph
        names = {graph.names[index] for index in error.nodes}
        lines = [
            f"{node!r} ({graph.nodes[graph.index_of(node)].op_type}): {fact.target}: {fact.reason}"
            for fact in refusals(self._pool, explorer.proposals.values())
            for node in fact.nodes
            if node in names
        ]
        lines += [f"{failure.target.name} failed in {failure.stage}: {failure.reason}" for failure in failures]
        return tuple(dict.fromkeys(lines))

    def _forced(self, asked: Asked, given: PlanFile) -> tuple[Explored, list[Plan]]:
        """The plan of a file, its kernels measured."""
        with self._clock.phase("candidates"):
            proposals = proposed(asked.rules, self._workload.graph, candidate_bounds(self._options))
            plan = planned(
                given,
                self._workload.graph,
                self._targets,
                proposals.values(),
                dispatch_us=self._pool.dispatch_us,
                copies=self._pool.copy_costs,
            )
            self._graph_choices.pins.check(plan)
        with self._clock.phase("measure"):
            explored, plan = measured_plan(plan, proposals, self._pool, self._source, self._progress)
        return explored, [plan]

    def _shortlist(self) -> list[Plan]:
        """The plans that are timed end to end."""
        plans = [*singles(self._pool, self._targets)]
        for plan in mixes(self._pool, self._preset.challengers):
            mixed, said = break_ties(plan, self._pool, self._source, self._choices.tie_breaking)
            plans.append(mixed)
            self._notes += said
        return plans

    def _timer(self, preset: Preset) -> EndToEndTimer:
        return EndToEndTimer(
            database=self._environment.database,
            model_key=self._workload.key,
            host=self._environment.host,
            threads=self._environment.threads,
            tolerance=self._source.settings.inexact_tolerance.relative,
            preset=preset,
            folder=self._environment.folder,
            inputs=lambda: self._workload.inputs_document(self._environment.folder, self._environment.store),
            build=self._build,
            progress=self._progress,
            deterministic=self._options.deterministic,
        )

    def _changed(
        self, plans: Sequence[Plan], timings: EndToEndTimings, explored: Explored
    ) -> tuple[list[Plan], EndToEndTimings]:
        """The second level: plans changed by moves, each judged end to end."""
        began = time.monotonic()
        budget_s = self._options.budget_s
        better = improved(
            self._pool,
            plans,
            timings,
            explored.proposals,
            judge=self._timer(dataclasses.replace(self._preset, rounds=FITNESS_ROUNDS)).run,
            race=self._timer(self._preset).run,
            measure=lambda kernel: self._source.measure([kernel]),
            limits=TwoLevelLimits(evaluations=self._preset.evaluations, seed=self._options.seed),
            stop=lambda: budget_s is not None and time.monotonic() - began > budget_s,
            tie_breaking=self._choices.tie_breaking,
        )
        self._notes.append(better.note)
        self._trace = better.trace
        return list(better.plans), better.timings

    # Phase 4

    def _sound(
        self, plans: Sequence[Plan], timings: EndToEndTimings
    ) -> tuple[EndToEndTimings, Decision, Assembled, Verified]:
        """The best plan whose package is right; what is wrong costs itself only, and is among the failed.

        Raises:
            CollageError: If none is.
        """
        mixed = [plan.name for plan in plans if not plan.single]
        while timings.timed:
            failed = [name for name in mixed if name in timings.failed]
            decision = decide(timings.timed, self._options.seed, failed=failed, tie_breaking=self._choices.tie_breaking)
            if self._choices.given is not None:
                reason = f"the plan of {self._choices.given.source} was asked for; no other was tried"
                decision = dataclasses.replace(decision, reason=reason)
            winner = next(plan for plan in plans if plan.name == decision.winner)
            try:
                assembled, verified = self._verified(winner)
            except (PlanBuildError, VerificationError) as error:
                self._notes.append(f"{winner.name} was the fastest and is not kept: {error}")
                self._progress.message(self._notes[-1])
                timings = timings.without(winner.name, str(error))
                continue
            return timings, decision, assembled, verified
        reasons = "; ".join(f"{name}: {reason}" for name, reason in timings.failed.items())
        raise CollageError(f"no plan runs the whole model: {reasons or 'the search found none'}")

    def _build(self, plan: Plan) -> Assembled:
        known = self._built.get(plan.key)
        if known is None:
            known = assemble(plan, self._source, self._environment.store, self._progress)
            self._built = {plan.key: known}  # only the last: artifacts may hold all the weights
        return known

    def _verified(self, plan: Plan) -> tuple[Assembled, Verified]:
        """Builds the plan and checks it on fresh inputs in a process of its own, once per database."""
        environment, tolerance = self._environment, self._tolerance(plan)
        variants = [self._source.variant(kernel) for kernel in plan.kernels]
        host = environment.host.fingerprint_for(*(kernel.target.device for kernel in plan.kernels))
        what = [plan.key, variants, self._workload.key, host, environment.threads, tolerance]
        name = hashlib.sha256(json.dumps(what).encode()).hexdigest()
        verified = environment.database.get_document(Verified, name)
        if verified is not None:
            assembled = self._built.get(plan.key)
            if assembled is None:
                self._progress.phase("building the plan", len(plan.kernels))
                assembled = assemble(plan, self._source, environment.store, self._progress, check=False)
            return dataclasses.replace(assembled, errors=verified.site_errors), verified
        self._progress.phase("building the plan", len(plan.kernels))
        assembled = self._build(plan)
        self._progress.phase("verifying on fresh inputs")
        package = environment.folder / "chosen.collage"
        assembled.save(
            package, None, threads=environment.threads, model_name=self._workload.facts.name, model_sha256=""
        )
        verified = verify(
            package,
            self._workload.graph,
            self._workload.fresh_inputs(),
            store=environment.store,
            folder=environment.folder,
            threads=environment.threads,
            tolerance=tolerance,
            fallback=self._fallback,
            site_errors=assembled.errors,
        )
        environment.database.put_document(name, verified)
        return assembled, verified

    # What was found out

    def _record(
        self,
        explored: Explored,
        failures: Sequence[TargetFailure],
        plans: Sequence[Plan],
        timings: EndToEndTimings,
        decision: Decision,
        assembled: Assembled,
        verified: Verified,
    ) -> Record:
        pool, plan, counts = self._pool, assembled.plan, self._source.counts
        against = comparison(plans, timings, decision)
        latency = against.contenders[0].latency_ms
        notes = [*self._workload.notes, *self._notes]
        if not self._workload.has_fresh_inputs:
            notes.append("verified on the given inputs: no others are known to fit")
        return Record(
            collage_version=importlib.metadata.version("collage-core"),
            created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            model=self._workload.facts,
            host=host_facts(self._environment.host),
            threads=self._environment.threads,
            seed=self._options.seed,
            preset=self._preset.name,
            max_error_allowed=self._options.max_error or 0.0,
            deterministic=self._options.deterministic,
            toolchains=toolchain_facts(
                self._environment.registry, self._environment.statuses, explored.proposals, plan
            ),
            search=SearchFacts(
                method=explored.result.method if self._trace is None else "two-level",
                exact=explored.result.exact,
                gap_us=explored.result.gap_us,
                candidates=len(pool),
                distinct_candidates=pool.distinct(),
                measured=counts.measured,
                cache_hits=counts.cache_hits,
                left_out="; ".join(explored.left_out),
                rounds=explored.rounds,
                seconds=self._clock.total(),
                compatible_sets=compatible_set_facts(pool),
            ),
            comparison=against,
            decision=decision.reason,
            predicted_ms=plan.predicted_us / 1000,
            measured_ms=latency.p50 if latency is not None else 0.0,
            max_error=verified.max_error,
            regions=regions(
                plan,
                pool,
                [proposals.rule.target for proposals in explored.proposals.values()],
                assembled.errors,
                verified.measured_us,
            ),
            refusals=refusals(pool, explored.proposals.values(), failures),
            unchecked=verified.unchecked,
            notes=tuple(notes),
            device_copies=device_copies(plan),
            devices=device_facts(self._environment.device_figures),
            device_work=verified.work,
        )
