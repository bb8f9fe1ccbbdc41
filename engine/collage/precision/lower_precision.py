"""Lower precision over a whole run: what was found out, how much further below the bound to stay, and the metric."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from collage.control.metric import UserMetric
from collage.errors import PrecisionError, TooInexactError, VerificationError
from collage.precision.plans.bound import MARGIN, Bound
from collage.precision.plans.drops import Drops
from collage.precision.plans.plan_runs import PlanRuns
from collage.precision.sensitivity.sensitivities import Sensitivities
from collage.precision.whole_models import plan_in_own_types
from collage.precision.within_bound import WithinBound, within_bound
from collage.report.facts.precision_facts import MetricFacts
from collage.report.progress import Progress
from collage.setup.environment import Environment
from collage.setup.workload import Workload
from collage_core.candidates.plan import Plan
from collage_core.candidates.pool import CandidatePool

_BACK_OFF: Final = 0.9
"""Factor by which a plan is to stay further below the bound than the one that exceeded it on fresh inputs."""


class LowerPrecision:
    """Decides about lower precision, repeatedly where a plan turns out to exceed what is allowed.

    Args:
        environment: The model and the toolchains.
        runs: Builds and runs plans.
        allowed: Largest error of an output that is allowed.
        metric: What plans may not drop in; None if only errors count.
        ranges: How ranges of 8-bit integers are chosen; see `OptimizeOptions.ranges`.
        progress: Receives progress updates.

    Attributes:
        sensitivities: What each group of products does to the outputs; None if that was not found out.
        facts: What the plan that was accepted last reaches in the metric; None if that is not known.
        silence: Why it is not known; empty if it is, or there is no metric.
    """

    def __init__(
        self,
        environment: Environment[Workload],
        runs: PlanRuns,
        allowed: float,
        metric: UserMetric | None,
        ranges: str,
        progress: Progress,
    ) -> None:
        self._environment = environment
        self._runs = runs
        self._largest = allowed
        self._metric = metric
        self._ranges = ranges
        self._progress = progress
        self._errors: dict[str, float] = {}
        self._drops: Drops | None = None
        self.sensitivities: Sensitivities | None = None
        self.facts: MetricFacts | None = None
        self.silence = ""

    @property
    def errors(self) -> Mapping[str, float]:
        """Errors of the plans that were run, by the plan's key."""
        return self._errors

    def explore(self, pool: CandidatePool) -> WithinBound:
        """Measure kernels of lower precision that are expected to keep to the bound.

        Args:
            pool: What was measured of kernels that compute in the model's own types.

        Raises:
            MetricError: If the metric cannot be computed.
        """
        drops = None
        if self._metric is not None:
            drops = self._compared_with(pool, self._metric)
            if drops is None:
                return WithinBound(pool=pool, notes=(f"lower precision was not looked at: {self.silence}",))
        bound = Bound(self._largest, drops)
        found = within_bound(self._environment, self._runs, pool, bound, self._ranges, self._progress)
        self.sensitivities = found.sensitivities
        self._errors |= found.errors
        return found

    def _compared_with(self, pool: CandidatePool, metric: UserMetric) -> Drops | None:
        """Return drops below a kernel for the whole model in its own types; None, and say why, if that is not possible.

        The kernel that was taken before is not if it turned out to be wrong since.

        Raises:
            MetricError: If the metric cannot be computed.
        """
        plain, labelled = plan_in_own_types(self._environment, pool), self._environment.workload.labelled
        if plain is None or labelled is None:
            self.silence = f"{metric.name} cannot be computed: no toolchain runs the whole model in its own types"
            return None
        if self._drops is None or self._drops.plain.key != plain.key:
            self._progress.phase(f"computing {metric.name} of the model")
            drops = Drops(self._environment, self._runs, metric, labelled, plain)
            try:
                value = drops.of_model(held_out=False)
            except PrecisionError as error:
                self.silence = f"{metric.name} cannot be computed: {plain.name} does not run labelled samples: {error}"
                return None
            self._drops = drops
            self._progress.message(f"{metric.name} of the model in its own types, by {plain.name}: {value:.6g}")
        self.silence = ""
        return self._drops

    def stay_below(self, error: TooInexactError) -> None:
        """Look for plans with smaller errors from now on.

        Args:
            error: Which of the plans that were run exceeds what is allowed.
        """
        self._largest = _BACK_OFF * min(self._largest / error.excess, self._errors[error.plan] / MARGIN)

    def accept(self, plan: Plan, pool: CandidatePool) -> None:
        """Compute the metric, if there is one, of the chosen plan on the samples that are held out.

        Args:
            plan: The plan.
            pool: What was measured.

        Raises:
            TooInexactError: If it has kernels of lower precision and drops further than is allowed.
            VerificationError: If it has such kernels, and the metric is not known of it.
            MetricError: If the metric cannot be computed.
        """
        if self._metric is None:
            return
        self.facts = self._facts(plan, pool, self._metric)
        if all(kernel.target.exact for kernel in plan.kernels):
            return
        if self.facts is None:
            raise VerificationError(f"{plan.name} computes in lower precision, and {self.silence}")
        if not self.facts.drop <= self._metric.max_drop:  # as nan is not
            raise TooInexactError(
                f"the saved plan drops by {self.facts.drop:.4g} in {self._metric.name} on samples that are held out, "
                f"and {self._metric.max_drop:g} is allowed",
                plan=plan.key,
            )

    def _facts(self, plan: Plan, pool: CandidatePool, metric: UserMetric) -> MetricFacts | None:
        """Return what a plan reaches on the samples that are held out; None, and say why, if it is not known."""
        drops = self._compared_with(pool, metric)
        if drops is None:
            return None
        self._progress.phase(f"computing {metric.name} of the plan")
        try:
            return MetricFacts(
                name=metric.name,
                max_drop=metric.max_drop,
                of_model=drops.of_model(held_out=True),
                of_plan=drops.value(plan, held_out=True),
                samples=len(drops.samples.held_out),
                held_out=drops.samples.are_apart,
            )
        except PrecisionError as error:
            self.silence = f"{metric.name} cannot be computed: labelled samples do not run: {error}"
            return None
