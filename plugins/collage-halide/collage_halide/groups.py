"""Fusion groups that are proposed: whatever of its operators feeds one result, reductions among them."""

from __future__ import annotations

from collage_core.contract import Target
from collage_core.fusion import (
    CombineByPrimitivesRule,
    FusionRule,
    KindCombiner,
    OnlyValidRule,
    OpPredicateRule,
    SubGraphConfig,
    UnionRule,
    WholeGroupsRule,
)
from collage_core.ir.operators.op_kind import OpPatternKind
from collage_core.patterns import PatternTable
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

_EXITS = 1
"""Most exits of a group: a second result would have loops of its own, and read everything again."""


def rule_of(target: Target) -> FusionRule:
    """Return the fusion rule of a target.

    Args:
        target: Target whose limits apply.
    """
    table = PatternTable()
    register(table)
    nodes = WholeGroupsRule(OpPredicateRule(table))
    limits = SubGraphConfig(max_inputs=target.max_inputs, max_depth=target.max_depth)
    fused = SubGraphConfig(max_exits=_EXITS, max_inputs=target.max_inputs, max_depth=target.max_depth, allow_taps=False)
    joined = CombineByPrimitivesRule(nodes, PRIMITIVES)
    return UnionRule((OnlyValidRule(nodes, limits), OnlyValidRule(joined, fused)))
