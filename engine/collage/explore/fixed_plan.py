"""A run of `optimize` that has nothing to choose."""

from __future__ import annotations

import dataclasses
import math

from collage.errors import PlanBuildError
from collage.explore.exploration import Explored
from collage.measure.driver.source import MeasuringCostSource
from collage.measure.wire.outcomes import Failed, Refused
from collage.report.progress import Progress
from collage_core.candidates.all_proposals import AllProposals
from collage_core.candidates.plan import Plan
from collage_core.candidates.pool import CandidatePool
from collage_core.contract import INVALID, Unmeasured
from collage_core.search import SearchResult

METHOD = "given plan"
"""`SearchFacts.method` when no search took place."""


def measured_plan(
    plan: Plan, proposed: AllProposals, pool: CandidatePool, source: MeasuringCostSource, progress: Progress
) -> tuple[Explored, Plan]:
    """Measure a given plan's kernels, checking each; nothing else is tried.

    Args:
        plan: The plan.
        proposed: What targets propose, for the record.
        pool: Takes the plan's kernels.
        source: Measures.
        progress: Receives progress updates.

    Raises:
        PlanBuildError: If a kernel is refused, fails or is wrong, or reads what cannot be brought to its device.
    """
    progress.phase("measuring the kernels of the plan", len(plan.kernels))
    costs: dict[int, float] = {}
    for kernel in plan.kernels:
        source.measure([kernel])
        cost = source.cost(kernel)
        if isinstance(cost, Unmeasured) or cost == INVALID:
            outcome = source.outcome(kernel)
            reason = outcome.reason if isinstance(outcome, Failed | Refused) else "it could not be measured"
            raise PlanBuildError(kernel.target.name, kernel.sub_graph.names, reason)
        costs[kernel.sub_graph.nodes] = cost
        progress.advance()
    pool = pool.with_candidates(plan.kernels)
    copies = pool.copies(plan.kernels)
    for copy in copies:
        if copy.cost_us == INVALID:
            kernel = next(
                k for k in plan.kernels if copy.destination == k.target.device or copy.source == k.target.device
            )
            reason = f"there is no way to bring {copy.value!r} from {copy.source} to {copy.destination}"
            raise PlanBuildError(kernel.target.name, kernel.sub_graph.names, reason)
    known = dataclasses.replace(
        plan,
        costs_us=tuple(costs[kernel.sub_graph.nodes] for kernel in plan.partitioning.kernels),
        copies=copies,
    )
    result = SearchResult(
        candidates=(),
        costs_us=known.costs_us,
        total_us=known.predicted_us,
        exact=False,
        gap_us=math.inf,
        states=0,
        method=METHOD,
        unmeasured=0,
    )
    explored = Explored(
        pool=pool,
        proposals=proposed.by_target,
        result=result,
        rounds=0,
        left_out=("everything but the plan that was given",),
        search_s=0.0,
    )
    return explored, known
