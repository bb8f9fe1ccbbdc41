"""`inspect`: report which parts of a model each toolchain would take. Measures nothing."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections import Counter

import onnx_ir

from collage.command_start import command_began
from collage.measure.budget import Budget
from collage.measure.models.preparing import prepared_apart
from collage.options import OptimizeOptions
from collage.process_guard import plugins_guarded
from collage.report.facts.inspect_facts import InspectReport, TargetCoverage
from collage.setup.environment import Environment
from collage.setup.settings import PRIVATE, SetupChoices, candidate_bounds
from collage.setup.workload import Workload
from collage_core.candidates.all_proposals import propose_all
from collage_core.candidates.proposals import Proposals
from collage_core.candidates.refusals import Refusal
from collage_core.ir.values.tensor_spec import TensorSpec
from collage_core.registry import Registry


@plugins_guarded()
def inspect(
    model: str | os.PathLike[str] | onnx_ir.Model,
    options: OptimizeOptions | None = None,
    *,
    registry: Registry | None = None,
) -> InspectReport:
    """Prepare a model and query each toolchain for the nodes it would take.

    Raises:
        CollageError: If the model cannot be used or no toolchain answers.
    """
    options = options or OptimizeOptions()
    budget = Budget.begin(options.budget_s, began=command_began())
    choices = dataclasses.replace(SetupChoices.of(options, budget), reference=None, tuning_db=PRIVATE, threads=None)
    prepare = functools.partial(prepared_apart, budget=budget, keep_free=True)
    read = functools.partial(Workload, model, input_shapes=options.input_shapes, prepare=prepare, keep_free=True)
    with (
        budget.enforced("inspecting the model"),
        Environment.open(read, choices, registry=registry) as environment,
    ):
        graph, workload, toolchains = environment.graph, environment.workload, environment.toolchains
        toolchains.targets()
        proposed = propose_all(environment.asked.rules, graph, candidate_bounds(options))
        failed = [*environment.asked.failures, *proposed.failures]
        out = {failure.target.name for failure in proposed.failures}
        coverage = [_coverage(each) for name, each in proposed.by_target.items() if name not in out]
        coverage += [
            TargetCoverage(
                target=each.target.name,
                toolchain=each.target.toolchain,
                unusable=f"{each.stage}: {each.reason}" + (f"; {each.remembered}" if each.remembered else ""),
            )
            for each in failed
        ]
        for status in toolchains.statuses:
            skipped = [(status.toolchain.name, status.unusable)] if status.unusable else list(status.skipped)
            coverage += [
                TargetCoverage(target=name, toolchain=status.toolchain.name, unusable=why) for name, why in skipped
            ]
        failures = toolchains.registry.failures
    operators = Counter(
        f"{node.domain}::{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type for node in graph.nodes
    )
    return InspectReport(
        model=workload.facts,
        kernel_nodes=graph.needs_kernel.bit_count(),
        operators=dict(sorted(operators.items())),
        inputs=tuple(_described(value, graph.spec(value)) for value in graph.model.graph.inputs),
        outputs=tuple(_described(value, graph.spec(value)) for value in graph.model.graph.outputs),
        targets=tuple(sorted(coverage, key=lambda each: each.target)),
        failures=failures,
    )


def _coverage(proposals: Proposals) -> TargetCoverage:
    target = proposals.rule.target
    grouped: dict[tuple[str, str], list[str]] = {}
    graph = proposals.graph
    for index, reason in sorted(proposals.refusals.items()):
        stage = "query" if index in proposals.rule.query else "predicate"
        grouped.setdefault((stage, reason), []).append(graph.names[index])
    return TargetCoverage(
        target=target.name,
        toolchain=target.toolchain,
        claimed_nodes=(proposals.covered & graph.needs_kernel).bit_count(),
        candidates=len(proposals.candidates),
        distinct_candidates=len({c.sub_graph.structural_hash for c in proposals.candidates}),
        refusals=tuple(
            Refusal(target=target.name, stage=stage, nodes=tuple(names), reason=reason)
            for (stage, reason), names in grouped.items()
        ),
    )


def _described(value: onnx_ir.Value, spec: TensorSpec) -> str:
    """Describe a value; a dimension that is not known has its symbol, or else a question mark."""
    dtype = spec.dtype.name.lower() if spec.dtype is not None else spec.kind.value
    dims = None if value.shape is None else [dim if isinstance(dim, int) else dim.value or "?" for dim in value.shape]
    return f"{spec.name}: {dtype}[{'?' if dims is None else ','.join(map(str, dims))}]"
