"""Fusion groups that are proposed: classic fusion and decomposed blocks, limited to groups with a loop nest."""

from __future__ import annotations

import collections
import dataclasses

import onnx_ir

from collage_core.contract import Target
from collage_core.fusion import (
    CombineByPrimitivesRule,
    DFPatternRule,
    FusionRule,
    OnlyValidRule,
    OpPredicateRule,
    RuleContext,
    RuleOutcome,
    SubGraph,
    SubGraphConfig,
    UnionRule,
    kernel_function,
)
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits
from collage_core.ir.values.content import constant_of
from collage_core.patterns import FusionPattern, PatternTable
from collage_core.patterns.library.activations import gelu_pattern, quick_gelu_pattern, silu_pattern
from collage_core.patterns.library.normalisation import layer_norm_pattern, rms_norm_pattern
from collage_triton.errors import Refused
from collage_triton.nest import Nest, Parameter, nest_of, nest_over
from collage_triton.patterns import register

WRITTEN_OUT = (
    FusionPattern(name="layer norm", pattern=layer_norm_pattern()),
    FusionPattern(name="layer norm of two axes", pattern=layer_norm_pattern(axes=(-2, -1))),
    FusionPattern(name="layer norm of channels", pattern=layer_norm_pattern(axes=(1,))),
    FusionPattern(name="RMS norm", pattern=rms_norm_pattern()),
    FusionPattern(name="GELU", pattern=gelu_pattern()),
    FusionPattern(name="quick GELU", pattern=quick_gelu_pattern()),
    FusionPattern(name="SiLU", pattern=silu_pattern()),
)
"""Blocks of several operators that are proposed whole.

Norms hold two reductions, which classic fusion never joins, and some other blocks are longer chains than small
presets make.
"""

_EXITS = 1
"""Most exits of a group; as in core's native fusion."""


def rule_of(target: Target) -> FusionRule:
    """Return the fusion rule of a target.

    Args:
        target: Target whose limits apply.
    """
    table = PatternTable()
    register(table)
    nodes = OpPredicateRule(table)
    start = UnionRule((nodes, *(DFPatternRule(each) for each in WRITTEN_OUT)))
    limits = SubGraphConfig(max_inputs=target.max_inputs, max_depth=target.max_depth)
    fused = dataclasses.replace(limits, max_exits=_EXITS, allow_taps=False)
    return CompilableRule(
        UnionRule((OnlyValidRule(nodes, limits), OnlyValidRule(CombineByPrimitivesRule(start), fused)))
    )


@dataclasses.dataclass(frozen=True)
class CompilableRule(FusionRule):
    """Restricts another rule to candidates with a loop nest, so that nothing is proposed that lowering would refuse.

    Attributes:
        rule: The other rule.
    """

    rule: FusionRule

    def propose(self, graph: DataflowGraph, context: RuleContext) -> RuleOutcome:
        """Propose the groups that have a loop nest.

        The groups left out are reported by number and reason.
        """
        outcome = self.rule.propose(graph, context)
        kept = []
        known: dict[str, str] = {}  # by what a group computes: layers repeat
        without: collections.Counter[str] = collections.Counter()
        alone: dict[int, str] = {}
        for sub_graph in outcome.sub_graphs:
            key = sub_graph.structural_hash
            if key not in known:
                known[key] = why_not(sub_graph)
            nodes, reason = sub_graph.nodes & graph.needs_kernel, known[key]
            if not reason:
                kept.append(sub_graph)
            elif nodes.bit_count() == 1:
                alone[nodes.bit_length() - 1] = reason
            else:
                without[reason] += 1
        name = context.target.name
        said = (f"{count} groups that are no one kernel of {name}: {reason}" for reason, count in without.items())
        result = outcome.with_sub_graphs(kept, *said)
        covered = result.covered
        refused = {index: reason for index, reason in alone.items() if not covered >> index & 1}
        return dataclasses.replace(result, refusals={**outcome.refusals, **refused})


def why_not(sub_graph: SubGraph) -> str:
    """Return why there is no loop nest for a group; empty if there is one."""
    try:
        nest_within(sub_graph)
    except Refused as refusal:
        return refusal.reason
    return ""


def nest_within(sub_graph: SubGraph) -> Nest:
    """Build the loop nest of a group inside its graph; extracting thousands would take longer than all else.

    Args:
        sub_graph: The group.

    Raises:
        Refused: If there is none.
    """
    graph = sub_graph.graph
    if any(sub_graph.nodes >> index & 1 for index in graph.compilers):
        return nest_of(kernel_function(sub_graph, "group"))  # what a call computes is in the function
    leaves: dict[onnx_ir.Value, Parameter] = {}
    for value in graph.read_values(iterate_bits(sub_graph.nodes)):
        constant, producer = constant_of(value), graph.producer(value)
        if constant is None and producer is not None and sub_graph.nodes >> producer & 1:
            continue
        if constant is None or constant.size > 1:
            try:
                leaves[value] = Parameter.of(value, "in", len(leaves), len(leaves))
            except Refused:
                if constant is None:
                    raise
    outputs = [
        value
        for index in iterate_bits(sub_graph.nodes)
        for value in graph.nodes[index].outputs
        if graph.is_exported(value, sub_graph.nodes)
    ]
    return nest_over(leaves, outputs)
