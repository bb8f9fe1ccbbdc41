"""`optimize`: from a model to the fastest plan, measured, verified and explained."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import hashlib
import importlib.metadata
import json
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Literal, cast

import onnx_ir

from collage_core.errors import CollageError, NoCoverError, PlanBuildError, VerificationError
from collage_core.fusion import CandidateBounds
from collage_core.measure.outcomes import BuildSettings, Tolerance
from collage_core.measure.source import MeasureSettings, MeasuringCostSource
from collage_core.passes.prepare_validity import blamed_on
from collage_core.pipeline.assemble import Assembled, assemble
from collage_core.pipeline.decision import Decision, decide
from collage_core.pipeline.dispatch import dispatch_us
from collage_core.pipeline.explore import Explored, Explorer
from collage_core.pipeline.facts import host_facts
from collage_core.pipeline.offers import Selection, check_reference
from collage_core.pipeline.options import OptimizeOptions
from collage_core.pipeline.plan import Plan
from collage_core.pipeline.pool import CandidatePool
from collage_core.pipeline.queries import Asked, TargetFailure, ask_targets, usable_rules
from collage_core.pipeline.recording import comparison, refusals, regions, toolchain_facts
from collage_core.pipeline.refine import Refined, Refiner
from collage_core.pipeline.shortlist import mixes, singles
from collage_core.pipeline.subject import Subject
from collage_core.pipeline.verify import Verified, verify
from collage_core.pipeline.workplace import Workplace
from collage_core.registry import Registry
from collage_core.report.codec import to_jsonable
from collage_core.report.progress import Progress, SilentProgress
from collage_core.report.record import Record, SearchFacts
from collage_core.runtime import Session, load


@dataclasses.dataclass(frozen=True, kw_only=True)
class Optimized:
    """The outcome: a plan that runs, and why it is the one.

    Attributes:
        record: Everything that was found out.
        assembled: The plan with its artifacts.
    """

    record: Record
    assembled: Assembled = dataclasses.field(repr=False)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the package, whole or not at all.

        Raises:
            PackageError: If it cannot be written.
        """
        self.assembled.save(
            path,
            to_jsonable(self.record),
            threads=self.record.threads,
            model_name=self.record.model.name,
            model_sha256=self.record.model.sha256,
        )

    def session(self) -> Session:
        """The plan, ready to run in this process."""
        with tempfile.TemporaryDirectory(prefix="collage-") as folder:
            package = os.path.join(folder, "plan.collage")
            self.save(package)
            return load(package)


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
    clock = _Clock()
    selection = Selection.parse(options.toolchains, options.exclude, inexact=options.max_error is not None)
    registry = registry or Registry.discover()
    selection.toolchains(registry)  # what is misspelt is said before any work
    check_reference(options.reference, registry)
    try:
        with clock.phase("prepare"):
            progress.phase("preparing the model")
            subject = Subject(model, input_shapes=options.input_shapes, inputs=options.inputs, seed=options.seed)
            progress.phase("asking toolchains")
            workplace = Workplace(selection, tuning_db=options.tuning_db, threads=options.threads, registry=registry)
        with workplace, blamed_on(subject.graph.model):
            return _Optimization(subject, workplace, options, progress, clock).run()
    finally:
        progress.done()


class _Clock:
    """Wall-clock seconds by phase."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._began = time.monotonic()

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Adds the time spent inside to a phase."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.add(name, time.monotonic() - began)

    def add(self, name: str, seconds: float) -> None:
        """Adds time to a phase."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    def total(self) -> dict[str, float]:
        """All phases, and the whole."""
        return {**self.seconds, "total": time.monotonic() - self._began}


class _Optimization:
    """One run of `optimize`: what its steps share."""

    def __init__(
        self, subject: Subject, workplace: Workplace, options: OptimizeOptions, progress: Progress, clock: _Clock
    ) -> None:
        self._subject = subject
        self._workplace = workplace
        self._options = options
        self._progress = progress
        self._clock = clock
        self._preset = options.effective
        self._targets = workplace.targets()
        self._built: dict[str, Assembled] = {}
        self._notes: list[str] = []
        self._fallback = workplace.fallback(subject.graph, options.reference)
        self._source = MeasuringCostSource(
            pool=workplace.pool,
            capture=subject.capture(workplace.store, self._fallback),
            database=workplace.database,
            host=workplace.host,
            settings=self._settings(),
        )
        self._pool = CandidatePool(subject.graph, self._source, dispatch_us(workplace.database, workplace.host))

    def run(self) -> Optimized:
        """All phases."""
        with self._clock.phase("candidates"):
            asked = ask_targets(self._subject.graph, self._workplace, self._progress)
            usable_rules(asked)
        explored, failures = self._explore(asked)
        with self._clock.phase("refine"):
            plans, refined = self._refine()
            refined, decision, assembled, verified = self._sound(plans, refined)
        record = self._record(explored, failures, plans, refined, decision, assembled, verified)
        return Optimized(record=record, assembled=assembled)

    def _settings(self) -> MeasureSettings:
        options, preset = self._options, self._preset
        exact = options.tolerance
        inexact = exact if options.max_error is None else max(exact, options.max_error)
        return MeasureSettings(
            build=BuildSettings(
                threads=self._workplace.threads,
                effort=preset.effort,
                seed=options.seed,
                max_variants=preset.max_variants,
            ),
            protocol=preset.protocol,
            tolerance=Tolerance(relative=exact, mismatched=exact),
            inexact_tolerance=Tolerance(relative=inexact, mismatched=inexact),
            deadline_s=preset.deadline_s,
        )

    def _tolerance(self, plan: Plan) -> float:
        limits = [self._source.settings.limits(kernel.target) for kernel in plan.kernels]
        return max((limit.tolerance.relative for limit in limits), default=self._options.tolerance)

    # Phase 3

    def _explore(self, asked: Asked) -> tuple[Explored, tuple[TargetFailure, ...]]:
        """Measures and searches; also which targets failed so far."""
        began = time.monotonic()
        explorer = Explorer(
            self._pool,
            asked.rules,
            self._source,
            preset=self._preset,
            bounds=CandidateBounds.preset(cast(Literal["quick", "default", "extensive"], self._preset.name)),
            progress=self._progress,
            budget_s=self._options.budget_s,
        )
        try:
            explored = explorer.run()
        except NoCoverError as error:
            names = tuple(self._subject.graph.names[index] for index in error.nodes)
            why = self._why_uncovered(explorer, error, (*asked.failures, *explorer.failures))
            raise error.explained(why, names) from error
        measuring = self._source.counts.seconds
        self._clock.add("measure", measuring)
        self._clock.add("search", explored.search_s)
        self._clock.add("candidates", max(0.0, time.monotonic() - began - measuring - explored.search_s))
        return explored, (*asked.failures, *explorer.failures)

    def _why_uncovered(
        self, explorer: Explorer, error: NoCoverError, failures: Sequence[TargetFailure]
    ) -> tuple[str, ...]:
        graph = self._subject.graph
        names = {graph.names[index] for index in error.nodes}
        lines = [
            f"{node!r} ({graph.nodes[graph.index_of(node)].op_type}): {fact.target}: {fact.reason}"
            for fact in refusals(self._pool, explorer.proposals.values())
            for node in fact.nodes
            if node in names
        ]
        lines += [f"{failure.target.name} failed in {failure.stage}: {failure.reason}" for failure in failures]
        return tuple(dict.fromkeys(lines))

    def _refine(self) -> tuple[list[Plan], Refined]:
        """Times whole plans against each other."""
        plans = [*singles(self._pool, self._targets), *mixes(self._pool, self._preset.challengers)]
        refined = Refiner(
            database=self._workplace.database,
            model_key=self._subject.key,
            host=self._workplace.host,
            threads=self._workplace.threads,
            tolerance=self._source.settings.inexact_tolerance.relative,
            preset=self._preset,
            folder=self._workplace.folder,
            inputs=lambda: self._subject.inputs_document(self._workplace.folder, self._workplace.store),
            build=self._build,
            progress=self._progress,
        ).run(plans)
        return plans, refined

    # Phase 4

    def _sound(self, plans: Sequence[Plan], refined: Refined) -> tuple[Refined, Decision, Assembled, Verified]:
        """The best plan whose package is right; what is wrong costs itself only, and is among the failed.

        Raises:
            CollageError: If none is.
        """
        mixed = [plan.name for plan in plans if not plan.single]
        while refined.timed:
            failed = [name for name in mixed if name in refined.failed]
            decision = decide(refined.timed, self._options.seed, failed=failed)
            winner = next(plan for plan in plans if plan.name == decision.winner)
            try:
                assembled, verified = self._verified(winner)
            except (PlanBuildError, VerificationError) as error:
                self._notes.append(f"{winner.name} was the fastest and is not kept: {error}")
                self._progress.message(self._notes[-1])
                refined = refined.without(winner.name, str(error))
                continue
            return refined, decision, assembled, verified
        reasons = "; ".join(f"{name}: {reason}" for name, reason in refined.failed.items())
        raise CollageError(f"no plan runs the whole model: {reasons or 'the search found none'}")

    def _build(self, plan: Plan) -> Assembled:
        known = self._built.get(plan.key)
        if known is None:
            known = assemble(plan, self._source, self._workplace.store, self._progress)
            self._built = {plan.key: known}  # only the last: artifacts may hold all the weights
        return known

    def _verified(self, plan: Plan) -> tuple[Assembled, Verified]:
        """Builds the plan and checks it on fresh inputs in a process of its own, once per database."""
        workplace, tolerance = self._workplace, self._tolerance(plan)
        variants = [self._source.variant(kernel) for kernel in plan.kernels]
        what = [plan.key, variants, self._subject.key, workplace.host.fingerprint, workplace.threads, tolerance]
        name = f"verified/{hashlib.sha256(json.dumps(what).encode()).hexdigest()}"
        known = workplace.database.get_plan(name)
        verified = None if known is None else Verified.of(known)
        if verified is not None:
            assembled = self._built.get(plan.key)
            if assembled is None:
                self._progress.phase("building the plan", len(plan.kernels))
                assembled = assemble(plan, self._source, workplace.store, self._progress, check=False)
            return dataclasses.replace(assembled, errors=verified.site_errors), verified
        self._progress.phase("building the plan", len(plan.kernels))
        assembled = self._build(plan)
        self._progress.phase("verifying on fresh inputs")
        package = workplace.folder / "chosen.collage"
        assembled.save(package, None, threads=workplace.threads, model_name=self._subject.facts.name, model_sha256="")
        verified = verify(
            package,
            self._subject.graph,
            self._subject.fresh_inputs(),
            store=workplace.store,
            folder=workplace.folder,
            threads=workplace.threads,
            tolerance=tolerance,
            fallback=self._fallback,
            site_errors=assembled.errors,
        )
        workplace.database.put_plan(name, verified.document())
        return assembled, verified

    # What was found out

    def _record(
        self,
        explored: Explored,
        failures: Sequence[TargetFailure],
        plans: Sequence[Plan],
        refined: Refined,
        decision: Decision,
        assembled: Assembled,
        verified: Verified,
    ) -> Record:
        pool, plan, counts = self._pool, assembled.plan, self._source.counts
        against = comparison(plans, refined, decision)
        latency = against.contenders[0].latency_ms
        notes = [*self._subject.notes, *self._notes]
        if not self._subject.has_fresh_inputs:
            notes.append("verified on the given inputs: no others are known to fit")
        return Record(
            collage_version=importlib.metadata.version("collage-core"),
            created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            model=self._subject.facts,
            host=host_facts(self._workplace.host),
            threads=self._workplace.threads,
            seed=self._options.seed,
            preset=self._preset.name,
            max_error_allowed=self._options.max_error or 0.0,
            toolchains=toolchain_facts(self._workplace.registry, self._workplace.offers, explored.proposals, plan),
            search=SearchFacts(
                method=explored.result.method,
                exact=explored.result.exact,
                gap_us=explored.result.gap_us,
                candidates=len(pool),
                distinct_candidates=pool.distinct(),
                measured=counts.measured,
                cache_hits=counts.cache_hits,
                left_out="; ".join(explored.left_out),
                rounds=explored.rounds,
                seconds=self._clock.total(),
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
        )
