"""`inspect`: what each toolchain would take of a model. Measures nothing."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from typing import Literal, cast

import onnx_ir

from collage.options import OptimizeOptions
from collage.prepare.validity import blamed_on
from collage.report.facts.inspect_facts import InspectReport, TargetCoverage
from collage.report.progress import SilentProgress
from collage.setup.environment import Environment
from collage.setup.queries import ask_targets
from collage.setup.targets import Selection
from collage.setup.workload import Workload
from collage_core.candidates.proposals import Proposals, TargetRule, propose, taken_whole
from collage_core.candidates.refusals import Refusal, TargetFailure
from collage_core.errors import PluginError
from collage_core.fusion import CandidateBounds, quantised_groups
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.values.tensor_spec import TensorSpec
from collage_core.registry import Registry


def inspect(
    model: str | os.PathLike[str] | onnx_ir.Model,
    options: OptimizeOptions | None = None,
    *,
    registry: Registry | None = None,
) -> InspectReport:
    """Prepares a model and asks each toolchain what it would take.

    Raises:
        CollageError: If the model cannot be used or no toolchain answers.
    """
    options = options or OptimizeOptions()
    selection = Selection.parse(options.toolchains, options.exclude, inexact=options.max_error is not None)
    registry = registry or Registry.discover()
    selection.toolchains(registry)  # what is misspelt is said before any work
    workload = Workload(model, input_shapes=options.input_shapes)
    graph = workload.graph
    bounds = CandidateBounds.preset(cast(Literal["quick", "default", "extensive"], options.preset))
    with Environment(selection, tuning_db="memory:", registry=registry) as environment, blamed_on(graph.model):
        environment.targets()
        asked = ask_targets(graph, environment, SilentProgress())
        proposals, refused = _proposals(asked.rules, graph, bounds)
        coverage = [_coverage(each) for each in proposals]
        failed = [*asked.failures, *refused]
        coverage += [
            TargetCoverage(
                target=each.target.name, toolchain=each.target.toolchain, unusable=f"{each.stage}: {each.reason}"
            )
            for each in failed
        ]
        for status in environment.statuses:
            skipped = [(status.toolchain.name, status.unusable)] if status.unusable else list(status.skipped)
            coverage += [
                TargetCoverage(target=name, toolchain=status.toolchain.name, unusable=why) for name, why in skipped
            ]
        failures = environment.registry.failures
    operators = Counter(
        f"{node.domain}::{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type for node in graph.nodes
    )
    return InspectReport(
        model=workload.facts,
        kernel_nodes=graph.needs_kernel.bit_count(),
        operators=dict(sorted(operators.items())),
        inputs=tuple(_described(graph.spec(value)) for value in graph.model.graph.inputs),
        outputs=tuple(_described(graph.spec(value)) for value in graph.model.graph.outputs),
        targets=tuple(sorted(coverage, key=lambda each: each.target)),
        failures=failures,
    )


def _proposals(
    rules: Sequence[TargetRule], graph: DataflowGraph, bounds: CandidateBounds
) -> tuple[list[Proposals], list[TargetFailure]]:
    """What each target proposes, quantised operators being split where no target takes them whole."""
    groups: tuple[int, ...] = quantised_groups(graph)
    while True:
        found, failed = [], []
        for rule in rules:
            try:
                found.append(propose(rule, graph, bounds, cuts=None, groups=groups))
            except PluginError as error:
                failed.append(TargetFailure.of(rule.target, error))
        if (whole := taken_whole(groups, found)) == groups:
            return found, failed
        groups = whole


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


def _described(spec: TensorSpec) -> str:
    dtype = spec.dtype.name.lower() if spec.dtype is not None else spec.kind.value
    extents = "?" if spec.shape is None else ",".join("?" if extent is None else str(extent) for extent in spec.shape)
    return f"{spec.name}: {dtype}[{extents}]"
