"""Measure the kernels of a plan that is to be kept in full: the lazy search did so for the plan that it chose only."""

from __future__ import annotations

import itertools
from typing import Final

from collage.errors import PlanBuildError, WrongKernelError
from collage.measure.budget import Budget
from collage.measure.driver.source import MeasuringCostSource
from collage.measure.wire.outcomes import Stage
from collage.report.progress import Progress
from collage_core.candidates.plan import Plan
from collage_core.passes.call_sites import site_name

_SHARE: Final = 0.9
"""Share of a budget after which nothing that was judged briefly is judged again: the plan is to be built, too."""


def measure_in_full(plan: Plan, source: MeasuringCostSource, budget: Budget, progress: Progress) -> None:
    """Measure what was measured briefly only, and what only other versions of a plugin, or of the judge, measured.

    Args:
        plan: The plan.
        source: Knows what was measured.
        budget: Of the whole run. Kernels that were measured briefly stay as they are once most of it is spent.
        progress: Receives progress updates.

    Raises:
        PlanBuildError: If a kernel is refused now, or fails otherwise.
        WrongKernelError: If it is wrong.
    """
    until = budget.part(_SHARE)
    known = [kernel for kernel in plan.kernels if source.usable(kernel)]
    outdated = [kernel for kernel in known if source.is_outdated(kernel)]
    brief = [kernel for kernel in known if kernel not in outdated and not source.is_confirmed(kernel)]
    if outdated or brief:
        progress.phase("measuring the kept plan's kernels in full", len(outdated) + len(brief))
        lacking = itertools.chain(outdated, itertools.takewhile(lambda _: not until.is_spent, brief))
        source.measure(lacking, "confirm", lambda step: progress.advance())
    for number, kernel in enumerate(plan.kernels):
        # what was judged as plans use it before is not held against it if there is no memory for that now
        if source.has_failed_for_now(source.record_key(kernel)) and kernel not in brief:
            continue
        target, names, rejection = kernel.target.name, kernel.sub_graph.names, source.rejection(kernel)
        if rejection and kernel in brief and rejection.stage == Stage.CHECK.value:
            raise WrongKernelError(target, names, site_name(number), rejection.reason)
        if rejection:
            raise PlanBuildError(target, names, rejection.reason)
