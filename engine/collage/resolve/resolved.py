"""A plan for a machine that may be elsewhere."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Sequence

from collage.control.plan_file import plan_document, write_plan
from collage.report.facts.resolve_facts import ResolvedKernel, ResolveReport
from collage.resolve.elsewhere import Elsewhere
from collage.setup.workload import Workload
from collage_core.candidates.plan import Plan
from collage_core.candidates.pool import CandidatePool
from collage_core.fusion import CandidateKernel
from collage_core.ir.graph.masks import iterate_bits


@dataclasses.dataclass(frozen=True, kw_only=True)
class Resolved:
    """A plan for a machine that may be elsewhere.

    Attributes:
        report: What is known of it.
        plan: The plan.
        pool: The candidates it was chosen from.
    """

    report: ResolveReport
    plan: Plan
    pool: CandidatePool

    def save_plan(self, path: str | os.PathLike[str]) -> None:
        """Write the plan, and the cost of every candidate that has one, as `optimize` does there.

        Raises:
            OSError: If it cannot be written.
        """
        model = self.report.model
        write_plan(path, plan_document(self.plan, self.pool, model=model.name, nodes=model.nodes))


def report_of(
    machine: Elsewhere,
    workload: Workload,
    plan: Plan,
    *,
    measured_us: float | None,
    decision: str,
    notes: Sequence[str],
) -> ResolveReport:
    """Return what is known of a plan.

    Args:
        machine: The machine.
        workload: The model.
        plan: The plan.
        measured_us: What it took there, in microseconds; None if it did not race.
        decision: Why this plan.
        notes: What else is to be said, a sentence each.
    """
    return ResolveReport(
        model=workload.facts,
        host=machine.host.fingerprint,
        threads=machine.threads,
        predicted_ms=plan.predicted_us / 1000,
        measured_ms=None if measured_us is None else measured_us / 1000,
        decision=decision,
        kernels=tuple(map(functools.partial(_facts, plan), plan.kernels)),
        notes=(*machine.notes, *notes),
    )


def _facts(plan: Plan, kernel: CandidateKernel) -> ResolvedKernel:
    sub_graph = kernel.sub_graph
    return ResolvedKernel(
        target=kernel.target.name,
        composite=sub_graph.label,
        nodes=sub_graph.names,
        operators=tuple(sub_graph.graph.nodes[index].op_type for index in iterate_bits(sub_graph.nodes)),
        cost_us=plan.cost_of[sub_graph.nodes],
    )
