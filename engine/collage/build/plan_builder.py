"""Plans of one run, built when they are wanted and verified once per database."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from collage.build.assemble import Assembled, assemble
from collage.build.full_measurements import measure_in_full
from collage.build.reference_runs import LEAST_S, ReferenceRuns
from collage.build.verifying.verify import DEADLINE_S, Sample, Verified, verify, verify_in_turn
from collage.build.verifying.wrong_kernel import PlanTrial
from collage.build.verifying.wrong_plans import WrongPlans
from collage.errors import (
    ModelCostError,
    PlanRunError,
    TooInexactError,
    VerificationError,
    WrongKernelError,
)
from collage.measure.budget import Budget
from collage.measure.worker.judge_version import JUDGE
from collage.report.progress import Progress
from collage.setup.environment import Environment
from collage.setup.workload import Workload
from collage.store import plan_name
from collage_core.candidates.plan import Plan
from collage_core.errors import EvaluationError


class PlanBuilder:
    """Builds plans; keeps the last one only, as artifacts may hold all the weights.

    Args:
        environment: The model and the toolchains.
        progress: Receives progress updates.

    Attributes:
        progress: As given.
    """

    def __init__(self, environment: Environment[Workload], progress: Progress) -> None:
        self._environment = environment
        self._reference = ReferenceRuns(environment)
        self.progress = progress
        toolchains, workload = environment.toolchains, environment.workload
        self._wrong = WrongPlans(
            toolchains.database, workload.sha256, workload.key, toolchains.host, toolchains.threads
        )
        self._last: Assembled | None = None

    def build(self, plan: Plan) -> Assembled:
        """Return a plan that can be saved.

        Raises:
            PlanBuildError: If a call site cannot be built, or is wrong.
        """
        known = self._known(plan)
        if known is None:
            store = self._environment.toolchains.store
            known = self._last = assemble(plan, self._environment.source, store, self.progress)
        return known

    def verified(self, plan: Plan) -> tuple[Assembled, Verified]:
        """Build a plan and check it on fresh inputs in a process of its own, once per database and version of plugins.

        A build that came out otherwise than the one that was checked is checked, too. What was checked less than it
        could be, because a budget ended, is checked again by the next run.

        Kernels that were measured briefly only are measured in full before, and judged as plans use them, as long as
        there is a budget. So are those of which only measurements by other versions of their plugin, or of the judge,
        are known.

        Raises:
            PlanBuildError: If a call site cannot be built, or is wrong.
            TooInexactError: If only the error of its outputs is too large, and its kernels are of lower precision.
            WrongKernelError: If one of its kernels makes it wrong, or stops it; it is recorded as failed.
            VerificationError: If it does not run, or its numbers are wrong, for another reason.
        """
        toolchains = self._environment.toolchains
        plugins = [toolchains.plugins[each] for each in plan.toolchains]
        try:
            measure_in_full(plan, self._environment.source, self._environment.budget, self.progress)
        except WrongKernelError as error:
            self._wrong.note(plan, plugins, str(error))
            raise
        name = self._name(plan)
        known = toolchains.database.get_document(Verified, name)
        assembled = self._known(plan) if known is not None else None
        if assembled is None:
            self.progress.phase("building the plan", len(plan.kernels))
        if known is not None:
            if assembled is None:  # an earlier run checked it
                assembled = assemble(plan, self._environment.source, toolchains.store, self.progress, check=False)
            assembled = dataclasses.replace(assembled, errors=known.site_errors)
            if assembled.digest == known.artifacts:
                return assembled, known
            self._last = assembled
        try:
            assembled = self.build(plan)
            verified, whole = self._verify(assembled)
        except TooInexactError as error:
            self._wrong.note(plan, plugins, str(error), bound=self._tolerance(plan))
            raise
        except VerificationError as error:
            if not (isinstance(error, PlanRunError) and error.is_late):
                self._wrong.note(plan, plugins, str(error))
            raise
        verified = dataclasses.replace(verified, artifacts=assembled.digest)
        if whole:
            toolchains.database.put_document(name, verified)
        self._wrong.note(plan, plugins, "")
        return assembled, verified

    def _known(self, plan: Plan) -> Assembled | None:
        return self._last if self._last is not None and self._last.plan.key == plan.key else None

    def _verify(self, assembled: Assembled) -> tuple[Verified, bool]:
        """Check a plan; return what came of it, and whether it was checked as strictly as without a budget."""
        workload, toolchains = self._environment.workload, self._environment.toolchains
        budget = self._environment.budget
        left_s = budget.left_s
        self.progress.phase("verifying on fresh inputs")
        package = toolchains.folder / "chosen.collage"
        inputs, evaluation = self._reference.fresh()
        probe = self._reference.probe(inputs)
        had_time = not budget.is_spent
        assembled.save(package, None, threads=toolchains.threads, model_name=workload.facts.name, model_sha256="")
        try:
            found = verify(
                package,
                workload.graph,
                inputs,
                store=toolchains.store,
                folder=toolchains.folder,
                threads=toolchains.threads,
                correct=self._are_correct(assembled.plan),
                tolerance=self._tolerance(assembled.plan),
                evaluation=evaluation,
                site_errors=assembled.errors,
                probe=probe,
                deadline_s=budget.within(DEADLINE_S, least_s=LEAST_S),
            )
            samples = []
            for sizes in workload.end_sizes:
                said = ", ".join(f"{name}={size}" for name, size in sizes.items())
                self.progress.phase(f"verifying with {said}")
                try:
                    samples.append(Sample(said, *self._reference.of_sizes(sizes)))
                except (EvaluationError, ModelCostError) as error:
                    found = found.with_unchecked(said, f"the reference gives nothing to compare with: {error}")
            if samples:
                largest = verify_in_turn(
                    package,
                    workload.graph,
                    [*samples, Sample("typical sizes", inputs, evaluation), *samples],
                    store=toolchains.store,
                    folder=toolchains.folder,
                    threads=toolchains.threads,
                    correct=self._are_correct(assembled.plan),
                    tolerance=self._tolerance(assembled.plan),
                    deadline_s=budget.within(DEADLINE_S, least_s=LEAST_S),
                )
                found = dataclasses.replace(found, max_error=max(found.max_error, largest))
            evaluations = [evaluation, *(sample.evaluation for sample in samples)]
            whole = had_time and len(samples) == len(workload.end_sizes)
            whole = whole and all(map(self._reference.is_conditioned, evaluations))
            return found, whole or math.isinf(budget.seconds)
        except TooInexactError as error:
            if any(kernel.target.is_chosen_by_region for kernel in assembled.plan.kernels):
                raise TooInexactError(str(error), error.excess, assembled.plan.key) from error
            raise self._traced(error, assembled, package, inputs, budget) from error
        except VerificationError as error:
            # as long as this took is left for the next best plan
            tracing = budget if math.isinf(left_s) else budget.but(left_s - budget.left_s)
            raise self._traced(error, assembled, package, inputs, tracing) from error

    def _traced(
        self,
        error: VerificationError,
        assembled: Assembled,
        package: Path,
        inputs: Mapping[str, Any],
        budget: Budget,
    ) -> VerificationError:
        """Return the error of the kernel that makes a plan wrong, which is condemned, or where errors add up."""
        toolchains, source = self._environment.toolchains, self._environment.source
        self.progress.phase("looking for the kernel that makes the plan wrong")
        trial = PlanTrial(
            assembled,
            package,
            inputs,
            store=toolchains.store,
            folder=toolchains.folder,
            threads=toolchains.threads,
            settings=source.settings,
            reference=functools.partial(self._reference.evaluate, budget=budget),
            budget=budget,
        )
        wrong = trial.stopping_kernel() if isinstance(error, PlanRunError) else trial.wrong_kernel()
        if wrong is None and isinstance(error, PlanRunError):
            return error
        if wrong is None:
            where = trial.too_far(self._environment.graph.model)
            return VerificationError(f"{error}; {where}") if where else error
        source.condemn(wrong.kernel, wrong.failure)
        self._last = None
        kernel = wrong.kernel
        return WrongKernelError(kernel.target.name, kernel.sub_graph.names, wrong.site, wrong.failure.reason)

    def _are_correct(self, plan: Plan) -> bool:
        """Return whether kernels have to be correct, and not only keep to an error."""
        settings = self._environment.source.settings
        targets = [kernel.target for kernel in plan.kernels]
        return all(each.exact and settings.limits(each).tolerance.is_of_correct_kernels for each in targets)

    def _are_inexact(self, plan: Plan) -> bool:
        """Return whether a kernel computes in other types than the model's."""
        return not all(kernel.target.exact for kernel in plan.kernels)

    def _tolerance(self, plan: Plan) -> float:
        settings = self._environment.source.settings
        return (settings.inexact_tolerance if self._are_inexact(plan) else settings.tolerance).relative

    def _name(self, plan: Plan) -> str:
        """Return under what the database keeps what came of verifying a plan."""
        toolchains = self._environment.toolchains
        variants = [self._environment.source.variant(kernel) for kernel in plan.kernels]
        host = toolchains.host.fingerprint_for(*(kernel.target.device for kernel in plan.kernels))
        workload = self._environment.workload
        plugins = [toolchains.plugins[name] for name in plan.toolchains]
        what = [plan.key, variants, workload.key, host, toolchains.threads, self._tolerance(plan), plugins, JUDGE]
        digest = hashlib.sha256(json.dumps(what).encode()).hexdigest()
        return plan_name(workload.sha256, plan.targets, digest)
