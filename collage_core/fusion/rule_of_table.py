"""The default rule of a target, used if its plugin provides none."""

from __future__ import annotations

import dataclasses

from collage_core.contract.target import Joins, Target
from collage_core.fusion.combinators import OnlyValidRule, UnionRule
from collage_core.fusion.combine import CombineByPrimitivesRule
from collage_core.fusion.known_rule import OnceRule
from collage_core.fusion.marked import PrimitiveRule
from collage_core.fusion.node_rules import OpCallByKindRule, OpPredicateRule
from collage_core.fusion.pattern_rules import CompositeRule, DFPatternRule
from collage_core.fusion.regions import RegionsRule
from collage_core.fusion.rule import FusionRule
from collage_core.fusion.sub_graph import SubGraphConfig
from collage_core.fusion.whole_groups import WholeGroupsRule
from collage_core.patterns import PatternTable

_FUSED_EXITS = 1
"""Maximum exits of a natively fused group, as in `FuseOps`; groups with one exit never close a cycle."""


@dataclasses.dataclass(frozen=True)
class BaseRule:
    """What a library takes as it is, of which its target's other candidates are made.

    Attributes:
        rule: Finds the single operators and the composites that the library takes.
        joins: How these are joined.
    """

    rule: FusionRule
    joins: Joins


def default_rule(table: PatternTable, target: Target) -> FusionRule:
    """Build a target's rule from its plugin's pattern table.

    Patterns: each match is a labelled composite. Predicates: each node they take. Both: both. Then, depending on
    `target.joins`: nothing more; or natively fused groups; or these and regions up to the whole model. Neither:
    native fusion of everything that is not opaque, regardless of `target.joins`. No candidate splits a quantised
    operator.

    Args:
        table: Patterns and predicates that the plugin registered.
        target: The plugin's target.
    """
    return joined_rule(base_rule(table, target), target)


def base_rule(table: PatternTable, target: Target) -> BaseRule:
    """Return the part of a target's rule that asks its plugin's patterns and predicates; the rest is core's.

    Args:
        table: Patterns and predicates that the plugin registered.
        target: The plugin's target.
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
    return BaseRule(OnceRule(base[0] if len(base) == 1 else UnionRule(tuple(base))), joins)


def joined_rule(base: BaseRule, target: Target) -> FusionRule:
    """Return the rule of a target that joins what its library takes.

    Args:
        base: What the library takes, and how it is joined.
        target: The target.
    """
    start, joins = WholeGroupsRule(base.rule), base.joins
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
