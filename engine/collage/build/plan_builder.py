"""Plans of one run, built when they are wanted and verified once per database."""

from __future__ import annotations

import dataclasses
import hashlib
import json

from collage.build.assemble import Assembled, assemble
from collage.build.verify import Verified, verify
from collage.errors import PlanBuildError
from collage.report.progress import Progress
from collage.setup.environment import Environment
from collage.setup.workload import Workload
from collage.store import plan_name
from collage_core.candidates.plan import Plan


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
        self.progress = progress
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

        Kernels of which only other versions of their plugin's measurements are known are measured once more before.

        Raises:
            PlanBuildError: If a call site cannot be built, or is wrong.
            VerificationError: If it does not run, or its numbers are wrong.
        """
        self._measure_again(plan)
        toolchains, name = self._environment.toolchains, self._name(plan)
        known = toolchains.database.get_document(Verified, name)
        assembled = self._known(plan) if known is not None else None
        if assembled is None:
            self.progress.phase("building the plan", len(plan.kernels))
        if known is not None:
            if assembled is None:  # an earlier run checked it
                assembled = assemble(plan, self._environment.source, toolchains.store, self.progress, check=False)
            return dataclasses.replace(assembled, errors=known.site_errors), known
        assembled = self.build(plan)
        verified = self._verify(assembled)
        toolchains.database.put_document(name, verified)
        return assembled, verified

    def _measure_again(self, plan: Plan) -> None:
        source = self._environment.source
        if stale := [kernel for kernel in plan.kernels if source.is_of_another_plugin(kernel)]:
            self.progress.phase("measuring with the present plugins", len(stale))
            source.measure(stale, "confirm", lambda step: self.progress.advance())
        for kernel in plan.kernels:
            passing = source.has_failed_for_now(source.record_key(kernel))
            if not passing and (rejection := source.rejection(kernel)):
                raise PlanBuildError(kernel.target.name, kernel.sub_graph.names, rejection.reason)

    def _known(self, plan: Plan) -> Assembled | None:
        return self._last if self._last is not None and self._last.plan.key == plan.key else None

    def _verify(self, assembled: Assembled) -> Verified:
        workload, toolchains = self._environment.workload, self._environment.toolchains
        self.progress.phase("verifying on fresh inputs")
        package = toolchains.folder / "chosen.collage"
        assembled.save(package, None, threads=toolchains.threads, model_name=workload.facts.name, model_sha256="")
        return verify(
            package,
            workload.graph,
            workload.fresh_inputs(),
            store=toolchains.store,
            folder=toolchains.folder,
            threads=toolchains.threads,
            tolerance=self._tolerance(assembled.plan),
            fallback=self._environment.fallback,
            site_errors=assembled.errors,
        )

    def _tolerance(self, plan: Plan) -> float:
        settings = self._environment.source.settings
        limits = [settings.limits(kernel.target) for kernel in plan.kernels]
        return max((limit.tolerance.relative for limit in limits), default=settings.tolerance.relative)

    def _name(self, plan: Plan) -> str:
        """Return under what the database keeps what came of verifying a plan."""
        toolchains = self._environment.toolchains
        variants = [self._environment.source.variant(kernel) for kernel in plan.kernels]
        host = toolchains.host.fingerprint_for(*(kernel.target.device for kernel in plan.kernels))
        workload = self._environment.workload
        plugins = [toolchains.plugins[name] for name in plan.toolchains]
        what = [plan.key, variants, workload.key, host, toolchains.threads, self._tolerance(plan), plugins]
        digest = hashlib.sha256(json.dumps(what).encode()).hexdigest()
        return plan_name(workload.sha256, plan.targets, digest)
