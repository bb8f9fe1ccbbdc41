"""What a plugin claims of a model: its library's refusals, and its candidates."""

from __future__ import annotations

from collections.abc import Mapping

from collage_core.candidates.proposals import propose, target_rule
from collage_core.fusion import CandidateBounds, CandidateKernel, SubGraph, kernel_function
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_testing.kit.kernel_check import KernelCheck


def queried(check: KernelCheck, graph: DataflowGraph, where: str, problems: list[str]) -> dict[int, str]:
    """Return what the library itself refuses, by node index.

    Args:
        check: Toolchain and target.
        graph: The model's graph.
        where: Begins each problem.
        problems: Receives what breaks the contract.
    """
    whole = SubGraph(graph, graph.all_mask)
    answer = check.toolchain.query(check.target, kernel_function(whole, "model")) or {}
    unknown = [name for name in answer if name not in graph.names]
    if unknown:
        problems.append(f"{where}: collage_query names nodes the model does not have: {', '.join(unknown)}")
    return {index: answer[name] for index, name in enumerate(graph.names) if name in answer}


def proposed(
    check: KernelCheck, graph: DataflowGraph, queried: Mapping[int, str]
) -> tuple[tuple[CandidateKernel, ...], Mapping[int, str]]:
    """Return what a target proposes of a graph, and refuses by node index.

    Args:
        check: Toolchain and target.
        graph: The graph.
        queried: What the library itself refuses, by node index.
    """
    proposals = propose(target_rule(check.toolchain, check.target, queried), graph, CandidateBounds.preset("quick"))
    return proposals.candidates, proposals.refusals
