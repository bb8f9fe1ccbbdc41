"""Find the fastest kernels of lower precision whose plans keep to a bound on the error of the outputs.

What rounding each group of products does to the outputs is found out first, by runs of one model that is built once
(`sensitivity`). That says which products each target can compute in lower precision. The kernels that follow are
measured, and their plans run, which says how far the expectation is off.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Final

from collage.build.plan_builder import PlanBuilder
from collage.errors import PrecisionError
from collage.precision.groups import product_groups
from collage.precision.mixed_plan import PrecisionMix
from collage.precision.plan_errors import PlanErrors
from collage.precision.samples import Samples
from collage.precision.sensitivities import Sensitivities
from collage.precision.sensitivity import Choice, Prober
from collage.precision.whole_models import WholeModels, fastest_exact
from collage.report.progress import Progress
from collage.setup.environment import Environment
from collage.setup.workload import Workload
from collage_core.candidates.plan import Plan
from collage_core.candidates.pool import CandidatePool
from collage_core.contract import Target

MARGIN: Final = 0.85
"""Share of the bound that a plan may use up on the calibration samples: on others its error may be larger.

A ConvNeXt whose error was 0.017 at most on four samples had 0.0149, 0.0175 and 0.0202 on three others.
"""
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
    environment: Environment[Workload], builder: PlanBuilder, pool: CandidatePool, bound: float, progress: Progress
) -> WithinBound:
    """Measure kernels of lower precision that are expected to keep to a bound.

    Args:
        environment: The model and the toolchains.
        builder: Builds plans.
        pool: What was measured of kernels that compute in the model's own types.
        bound: Largest error of an output.
        progress: Receives progress updates.
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
    samples = Samples(environment, runner)
    notes: list[str] = []
    sensitivities = Sensitivities(groups=(), int8=(), bf16=())
    models = WholeModels(environment, pool, MARGIN * bound, PlanErrors(environment, builder, samples), progress)
    try:
        sensitivities = _sensitivities(environment, samples, runner, targets, progress)
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
        if target.quantises and sensitivities.groups:
            sensitivities = models.quantised(target, sensitivities)
        elif not target.quantises:
            sensitivities = models.rounded(target, sensitivities)
    plans = _mixed(environment, models, sensitivities, MARGIN * bound, progress) if sensitivities.groups else ()
    kernels = [*models.pool, *(kernel for plan in plans for kernel in plan.kernels)]
    if not environment.workload.is_calibrated and any(kernel.sub_graph.int8 for kernel in kernels):
        notes.append(_GUESSES)
    return WithinBound(
        pool=models.pool,
        plans=plans,
        errors=models.errors,
        sensitivities=sensitivities if sensitivities.groups else None,
        notes=tuple(notes),
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


def _sensitivities(
    environment: Environment[Workload],
    samples: Samples,
    runner: Target,
    targets: Sequence[Target],
    progress: Progress,
) -> Sensitivities:
    """Find what rounding each group of products does.

    Raises:
        PrecisionError: If that does not succeed.
    """
    progress.phase("running the model on calibration samples", 1)
    groups = product_groups(environment.graph, samples.ranges())
    progress.advance()
    if not groups:
        raise PrecisionError("the model has no products of constant weights in float32, or is quantised already")
    prober = Prober(environment, groups, runner)
    each = [1 << number for number in range(len(groups))]
    eight = [Choice(int8=mask) for mask in each if any(target.quantises for target in targets)]
    sixteen = [Choice(bf16=mask) for mask in each if any(target.rounded_precision for target in targets)]
    progress.phase("running the model with rounded operands", len(eight) + len(sixteen))
    found = prober.errors([*eight, *sixteen])
    unused = [0.0] * len(groups)  # no target computes so
    return Sensitivities(groups=groups, int8=found[: len(eight)] or unused, bf16=found[len(eight) :] or unused)


def _mixed(
    environment: Environment[Workload],
    models: WholeModels,
    sensitivities: Sensitivities,
    bound: float,
    progress: Progress,
) -> tuple[Plan, ...]:
    """Look for a plan that mixes precisions, if a kernel that exceeds the bound is faster than all that keep to it.

    Its kernels are not for other searches, which know nothing of the bound.
    """
    wholes = {candidate: cost_us for candidate, (cost_us, _) in models.found.items()}
    if not wholes or min(wholes.values()) > models.best_us or environment.budget.exploring.is_spent:
        return ()
    if (plain := fastest_exact(models.pool)) is not None:
        wholes[plain[0]] = plain[1]
    mix = PrecisionMix(
        models.pool,
        list(wholes.items()),
        sensitivities,
        bound,
        {candidate: error for candidate, (_, error) in models.found.items() if error <= bound},
        environment.source,
        models.plan_error,
        lambda: environment.budget.exploring.is_spent,
        progress,
    )
    plan = mix.plan(models.best_us)
    return () if plan is None else (plan,)
