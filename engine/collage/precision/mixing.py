"""Decide whether a plan that mixes precisions is looked for, and for which."""

from __future__ import annotations

from typing import Final

from collage.precision.mixed_plan import PrecisionMix
from collage.precision.sensitivity.sensitivities import Sensitivities
from collage.precision.whole_models import WholeModels, fastest_exact
from collage.report.progress import Progress
from collage.setup.environment import Environment
from collage.setup.workload import Workload
from collage_core.candidates.plan import Plan

_JUST_BEYOND: Final = 1.05
"""Error, relative to the bound, that a plan is said to have if only a metric refuses it."""


def mixed_plans(
    environment: Environment[Workload], models: WholeModels, sensitivities: Sensitivities, progress: Progress
) -> tuple[Plan, ...]:
    """Look for a plan that mixes precisions, if a kernel that exceeds the bound is faster than all that keep to it.

    Its kernels are not for other searches, which know nothing of the bound.

    Args:
        environment: The model and the toolchains.
        models: What was found out of kernels for the whole model.
        sensitivities: What each group of products does to the outputs.
        progress: Receives progress updates.

    Raises:
        MetricError: If the metric of the bound cannot be computed.
    """
    wholes = {candidate: found.cost_us for candidate, found in models.found.items()}
    if not wholes or min(wholes.values()) > models.best_us or environment.budget.exploring.is_spent:
        return ()
    if (plain := fastest_exact(models.pool)) is not None:
        wholes[plain[0]] = plain[1]
    bound = models.bound.error

    def error_if_kept(plan: Plan) -> float:
        """Return the error of a plan; a little too large if only the metric refuses it."""
        error, kept = models.plan_error(plan)
        return error if kept else max(error, _JUST_BEYOND * bound)

    mix = PrecisionMix(
        models.pool,
        list(wholes.items()),
        sensitivities,
        bound,
        {candidate: found.error for candidate, found in models.found.items() if found.kept},
        environment.source,
        error_if_kept,
        lambda: environment.budget.exploring.is_spent,
        progress,
    )
    plan = mix.plan(models.best_us)
    return () if plan is None else (plan,)
