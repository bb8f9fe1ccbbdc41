"""Fusion groups that are proposed: whatever feeds one result, or two that the same loops write, reductions included."""

from __future__ import annotations

import dataclasses

from collage_core.contract import Target
from collage_core.fusion import (
    CombineByPrimitivesRule,
    FusionRule,
    KindCombiner,
    OnlyValidRule,
    OpPredicateRule,
    RuleContext,
    RuleOutcome,
    SubGraph,
    SubGraphConfig,
    UnionRule,
    WholeGroupsRule,
)
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits
from collage_core.ir.operators.op_kind import OpPatternKind
from collage_core.patterns import PatternTable
from collage_halide.op import shape_of, without_ones
from collage_halide.patterns import register

_K = OpPatternKind

PRIMITIVES = (
    KindCombiner(_K.REDUCTION, _K.REDUCTION),
    KindCombiner(_K.REDUCTION, _K.OUT_ELEMENTWISE_FUSABLE),
    KindCombiner(_K.OUT_ELEMENTWISE_FUSABLE, _K.REDUCTION),
)
"""Joins beyond those of classic fusion.

A compiler of loops computes a producer inside the loops of its consumer, be that an upsampling in an arg max, a softmax
in a maximum, or an activation in a pooling. Two anchors, poolings and convolutions here, are not joined.
"""

_EXITS = 2
"""Most exits of a group, as of a residual sum and the norm of it."""


def rule_of(target: Target) -> FusionRule:
    """Return the fusion rule of a target.

    Args:
        target: Target whose limits apply.
    """
    table = PatternTable()
    register(table)
    nodes = WholeGroupsRule(OpPredicateRule(table))
    limits = SubGraphConfig(max_inputs=target.max_inputs, max_depth=target.max_depth)
    fused = SubGraphConfig(max_exits=_EXITS, max_inputs=target.max_inputs, max_depth=target.max_depth)
    joined = CombineByPrimitivesRule(nodes, PRIMITIVES)
    return UnionRule((OnlyValidRule(nodes, limits), SameLoopsRule(OnlyValidRule(joined, fused))))


@dataclasses.dataclass(frozen=True)
class SameLoopsRule(FusionRule):
    """Those candidates of another rule whose exits have one shape, so that the same loops write all.

    Loops of its own for each would read everything again.

    Attributes:
        rule: The other rule.
    """

    rule: FusionRule

    def propose(self, graph: DataflowGraph, context: RuleContext) -> RuleOutcome:
        """Drop what would need several loops; nodes that lose a candidate so have one alone."""
        outcome = self.rule.propose(graph, context)
        return outcome.with_sub_graphs(each for each in outcome.sub_graphs if _has_one_shape(each))


def _has_one_shape(sub_graph: SubGraph) -> bool:
    """Return whether all exits have the same shape, but for axes of extent 1."""
    nodes = [sub_graph.graph.nodes[index] for index in iterate_bits(sub_graph.exits)]
    if len(nodes) < 2:
        return True
    results = [value for node in nodes for value in node.outputs if value.uses() or value.is_graph_output()]
    return len({without_ones(shape_of(value)) for value in results}) == 1
