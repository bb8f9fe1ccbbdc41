"""Find the fastest kernels of lower precision whose plans keep to a bound on the error of the outputs.

What rounding each group of products does to the outputs is found out first, by runs of one model that is built once
(`sensitivity`). That says which products each target can compute in lower precision. The kernels that follow are
measured, and their plans run, which says how far the expectation is off.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Final

from collage.errors import PrecisionError
from collage.precision.mixing import mixed_plans
from collage.precision.plans.bound import Bound
from collage.precision.plans.plan_errors import PlanErrors
from collage.precision.plans.plan_runs import PlanRuns
from collage.precision.sensitivity.finding import find_sensitivities
from collage.precision.sensitivity.samples import Samples
from collage.precision.sensitivity.sensitivities import Sensitivities
from collage.precision.whole_models import WholeModels, fastest_exact
from collage.report.progress import Progress
from collage.setup.environment import Environment
from collage.setup.workload import Workload
from collage_core.candidates.plan import Plan
from collage_core.candidates.pool import CandidatePool
from collage_core.contract import Target

_GUESSES: Final = (
    "ranges of 8-bit integers are guesses, since they are those of random inputs: give real ones with --calibration"
)
_NAMED: Final = 3
"""Names of products in a sentence."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class WithinBound:
    """Kernels of lower precision.

    Attributes:
        pool: The candidates, with kernels for the whole model whose plans keep to the bound.
        plans: Plans that mix precisions and keep to the bound.
        errors: Error of the outputs of each plan of lower precision that was run, by the plan's key.
        sensitivities: What each group of products does to the outputs; None if that was not found out.
        notes: Sentences for the report.
    """

    pool: CandidatePool
    plans: tuple[Plan, ...] = ()
    errors: Mapping[str, float] = dataclasses.field(default_factory=dict)
    sensitivities: Sensitivities | None = None
    notes: tuple[str, ...] = ()


def within_bound(
    environment: Environment[Workload],
    runs: PlanRuns,
    pool: CandidatePool,
    bound: Bound,
    ranges: str,
    progress: Progress,
) -> WithinBound:
    """Measure kernels of lower precision that are expected to keep to a bound.

    Args:
        environment: The model and the toolchains.
        runs: Builds and runs plans.
        pool: What was measured of kernels that compute in the model's own types.
        bound: What plans have to keep to.
        ranges: How ranges of 8-bit integers are chosen; see `OptimizeOptions.ranges`.
        progress: Receives progress updates.

    Raises:
        MetricError: If the metric of the bound cannot be computed.
    """
    targets = _targets(environment, pool)
    if not targets:
        return WithinBound(pool=pool)
    if (plain := fastest_exact(pool)) is None:
        return WithinBound(
            pool=pool,
            notes=("lower precision was not looked at: no toolchain runs the whole model in its own types",),
        )
    runner = plain[0].target
    samples = Samples(environment, runner, ranges)
    notes: list[str] = []
    sensitivities = Sensitivities(groups=(), int8=(), bf16=())
    models = WholeModels(environment, pool, bound, PlanErrors(environment, runs, samples), progress)
    try:
        sensitivities = find_sensitivities(environment, samples, runner, targets, progress)
        if silent := samples.without_range():
            named = ", ".join(map(repr, silent[:_NAMED]))
            notes.append(
                f"{len(silent)} products read nothing but zeros in the calibration samples, or numbers without bounds, "
                f"and are not quantised: {named}"
            )
    except PrecisionError as error:
        notes.append(f"precision is not decided by region: {error}")
    for target in sorted(targets, key=lambda each: (not each.quantises, not each.rounded_precision, each.name)):
        if environment.budget.exploring.is_spent:
            notes.append("the budget ended before all targets of lower precision were looked at")
            break
        if target.quantises_only_weights and not sensitivities.weights:
            continue
        if target.quantises and sensitivities.groups:
            sensitivities = models.quantised(target, sensitivities)
        elif not target.quantises:
            sensitivities = models.rounded(target, sensitivities)
    plans = mixed_plans(environment, models, sensitivities, progress) if sensitivities.groups else ()
    kernels = [*models.pool, *(kernel for plan in plans for kernel in plan.kernels)]
    if not environment.workload.is_calibrated and any(
        product.span is not None for kernel in kernels for product in kernel.sub_graph.int8
    ):
        notes.append(_GUESSES)
    return WithinBound(
        pool=models.pool,
        plans=plans,
        errors=models.errors,
        sensitivities=sensitivities if sensitivities.groups else None,
        notes=(*notes, *bound.refused),
    )


def _targets(environment: Environment[Workload], pool: CandidatePool) -> list[Target]:
    """Return the targets that are decided by region and whose toolchain refuses nothing of the model."""
    refusing = {
        rule.target.toolchain
        for rule in environment.asked.rules
        if any(pool.whole >> index & 1 for index in rule.query)
    }
    targets = environment.toolchains.targets()
    return [each for each in targets if each.is_chosen_by_region and each.toolchain not in refusing]
