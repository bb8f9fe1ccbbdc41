"""Lower precision over a whole run: what was found out, how much further below the bound to stay, and the metric."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from collage.control.metric import UserMetric
from collage.errors import PlanRunError, PrecisionError, TooInexactError
from collage.precision.plans.bound import MARGIN, Bound
from collage.precision.plans.drops import Drops
from collage.precision.plans.plan_runs import PlanRuns
from collage.precision.sensitivity.sensitivities import Sensitivities
from collage.precision.whole_models import fastest_exact_plan
from collage.precision.within_bound import WithinBound, within_bound
from collage.report import figures
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
        facts: What the plan that was accepted last reaches in the metric; None without one.
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
        self._compare_with(pool)
        bound = Bound(self._largest, self._drops)
        found = within_bound(self._environment, self._runs, pool, bound, self._ranges, self._progress)
        self.sensitivities = found.sensitivities
        self._errors |= found.errors
        return found

    def _compare_with(self, pool: CandidatePool) -> None:
        """Take the fastest kernel for the whole model in its own types for what plans may not drop below."""
        labelled = self._environment.workload.labelled
        if self._drops is not None or self._metric is None or labelled is None:
            return
        if (plain := fastest_exact_plan(pool)) is None:
            return
        self._progress.phase(f"computing {self._metric.name} of the model", 1)
        self._drops = Drops(self._environment, self._runs, self._metric, labelled, plain)
        value = self._drops.of_model(held_out=False)
        self._progress.advance()
        count = figures.counted(len(labelled.deciding), "sample")
        self._progress.message(f"{self._metric.name} of the model in its own types: {value:.6g}, on {count}")

    @property
    def silence(self) -> str:
        """Why nothing is known of the metric; empty if something is, or there is none."""
        if self._metric is None or self.facts is not None:
            return ""
        return f"{self._metric.name} was not computed: no toolchain was found to run the whole model in its own types"

    def stay_below(self, error: TooInexactError) -> None:
        """Look for plans with smaller errors from now on.

        Args:
            error: Which of the plans that were run exceeds what is allowed.
        """
        self._largest = _BACK_OFF * min(self._largest / error.excess, self._errors[error.plan] / MARGIN)

    def accept(self, plan: Plan) -> None:
        """Compute the metric of the chosen plan on the samples that are held out.

        Raises:
            TooInexactError: If it has kernels of lower precision and drops further than is allowed.
            PlanRunError: If it does not run on them.
            MetricError: If the metric cannot be computed.
        """
        if self._drops is None:
            return
        metric, samples = self._drops.metric, self._drops.samples
        self._progress.phase(f"computing {metric.name} of the plan", 1)
        of_model = self._drops.of_model(held_out=True)
        try:
            value = self._drops.value(plan, held_out=True)
        except PrecisionError as error:
            raise PlanRunError(f"the saved plan does not run on labelled samples: {error}") from error
        self._progress.advance()
        self.facts = MetricFacts(
            name=metric.name,
            max_drop=metric.max_drop,
            of_model=of_model,
            of_plan=value,
            samples=len(samples.held_out),
            held_out=samples.are_apart,
        )
        if self.facts.drop > metric.max_drop and not all(kernel.target.exact for kernel in plan.kernels):
            raise TooInexactError(
                f"the saved plan drops by {self.facts.drop:.4g} in {metric.name} on samples that are held out, and "
                f"{metric.max_drop:g} is allowed",
                plan=plan.key,
            )
