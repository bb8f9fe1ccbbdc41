"""Targets, their rules and candidates, to see what is made of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from collage_core.candidates.proposals import TargetRule, target_rule
from collage_core.contract import Joins, Supported, Target, Unsupported
from collage_core.fusion import CandidateKernel, FusionSpec, OpCallByKindRule, SubGraph
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.patterns import NodeContext
from collage_core.registry import Toolchain
from collage_testing import MockToolchain


def a_target(name: str, **options: Any) -> Target:
    """A target that joins anything, unless told otherwise."""
    options = {"fingerprint": f"{name} 1", "joins": Joins.ANY, **options}
    return Target(toolchain=name, **options)


def kernel(graph: DataflowGraph, target: Target, *names: str, label: str = "") -> CandidateKernel:
    """The candidate of these nodes; of all of them if none is named."""
    nodes = sum(1 << graph.index_of(name) for name in names) if names else graph.needs_kernel
    spec = FusionSpec(name=target.name, rule=OpCallByKindRule(), targets=(target,))
    return CandidateKernel(SubGraph(graph, graph.completed(nodes), label), spec)


def rule_of(target: Target, *, refuses: Iterable[str] = (), query: dict[int, str] | None = None) -> TargetRule:
    """The default rule of a target that takes every operator but these."""
    refused = frozenset(refuses)

    def takes(node: NodeContext) -> Supported | Unsupported:
        return Unsupported(f"{target.name} has no {node.op_type}") if node.op_type in refused else Supported()

    mock = MockToolchain(target.toolchain, costs_us={}, predicates={"*": takes}, targets=[target])
    return target_rule(Toolchain(target.toolchain, mock), target, query or {})
