"""The rule of a target whose plugin gives no rule of its own."""

from __future__ import annotations

from collage_core.contract.target import Joins, Target
from collage_core.fusion.combinators import OnlyValidRule, UnionRule
from collage_core.fusion.combine import CombineByPrimitivesRule
from collage_core.fusion.marked import PrimitiveRule
from collage_core.fusion.node_rules import OpCallByKindRule, OpPredicateRule
from collage_core.fusion.pattern_rules import CompositeRule, DFPatternRule
from collage_core.fusion.regions import RegionsRule
from collage_core.fusion.rule import FusionRule
from collage_core.fusion.sub_graph import SubGraphConfig
from collage_core.fusion.whole_groups import WholeGroupsRule
from collage_core.patterns import PatternTable

_FUSED_EXITS = 1
"""Exits of a natively fused group: what `FuseOps` allows, and groups with one exit never close a cycle."""


def default_rule(table: PatternTable, target: Target) -> FusionRule:
    """Builds a target's rule from what its plugin registered.

    Patterns: each match is a labelled composite. Predicates: each node they take. Both: both. Then, as
    `target.joins` says: nothing more; or natively fused groups; or these and regions up to the whole model. Neither:
    native fusion of everything that is not opaque, whatever `target.joins` says. No candidate splits a quantised
    operator.

    Args:
        table: What the plugin registered.
        target: For whom.
    """
    base: list[FusionRule] = [CompositeRule(DFPatternRule(entry), entry.name) for entry in table.patterns]
    if table.predicates:
        base.append(OpPredicateRule(table))
    elif base:
        base.append(PrimitiveRule(table.patterns))
    joins = target.joins
    if not base:
        base += [OpCallByKindRule(), PrimitiveRule()]
        joins = Joins.NATIVE if joins is Joins.NONE else joins
    start = WholeGroupsRule(base[0] if len(base) == 1 else UnionRule(tuple(base)))
    limits = SubGraphConfig(max_inputs=target.max_inputs, max_depth=target.max_depth)
    alone = OnlyValidRule(start, limits)
    if joins is Joins.NONE:
        return alone
    fused = OnlyValidRule(
        CombineByPrimitivesRule(start),
        SubGraphConfig(
            max_exits=_FUSED_EXITS, max_depth=target.max_depth, max_inputs=target.max_inputs, allow_taps=False
        ),
    )
    if joins is Joins.NATIVE:
        return UnionRule((alone, fused))
    return UnionRule((alone, fused, OnlyValidRule(RegionsRule(start), limits)))
