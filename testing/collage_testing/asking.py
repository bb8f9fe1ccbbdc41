"""What mock toolchains answer before anything is proposed: their targets, and what their libraries refuse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from collage_core.candidates.proposals import TargetRule, target_rule
from collage_core.contract import Host, Unsupported
from collage_core.errors import PluginError
from collage_core.fusion import SubGraph, kernel_function
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.registry import Toolchain
from collage_testing.mock import MockToolchain

HOST = Host(system="Mock mock", cpu="mock", physical_cores=1, cpu_flags=frozenset(), memory_bytes=1 << 30)


def rules_of(toolchains: Sequence[MockToolchain], graph: DataflowGraph) -> tuple[list[TargetRule], Mapping[str, str]]:
    """Return the rule of each target, and by name why toolchains have none.

    Args:
        toolchains: The mocks.
        graph: What their libraries are asked about.
    """
    rules: list[TargetRule] = []
    unusable: dict[str, str] = {}
    for mock in toolchains:
        try:
            answers = _rules(mock, graph)
        except PluginError as error:
            answers = Unsupported(str(error))
        if isinstance(answers, Unsupported):
            unusable[mock.name] = answers.reason
        else:
            rules += answers
    return rules, unusable


def _rules(mock: MockToolchain, graph: DataflowGraph) -> list[TargetRule] | Unsupported:
    toolchain = Toolchain(mock.name, mock)
    targets = toolchain.targets(HOST)
    if isinstance(targets, Unsupported):
        return targets
    found = []
    for target in targets:
        refused: Mapping[str, str] = {}
        if graph.needs_kernel:
            refused = toolchain.query(target, kernel_function(SubGraph(graph, graph.all_mask), "model")) or {}
        by_index = {index: refused[name] for index, name in enumerate(graph.names) if name in refused}
        found.append(target_rule(toolchain, target, by_index))
    return found
