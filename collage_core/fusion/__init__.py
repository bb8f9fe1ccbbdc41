"""Find the kernels that a graph may be cut into.

Names are imported on first use: a process that runs a package needs sub-graphs, but no rules.
"""

from typing import TYPE_CHECKING

from collage_core.late_names import late_names

if TYPE_CHECKING:
    from collage_core.fusion.anchors import (
        ANCHOR_PRIMITIVES,
        CONVOLUTION_PAIRS,
        PARALLEL_PRODUCTS,
        PRODUCT_PAIRS,
        HorizontalCombiner,
        VerticalCombiner,
    )
    from collage_core.fusion.arguments import ConcatCombiner, SplitCombiner
    from collage_core.fusion.bounds import CandidateBounds
    from collage_core.fusion.coalesce import MaxCoalesceRule, merged_neighbours
    from collage_core.fusion.combinators import OnlyValidRule, UnionRule
    from collage_core.fusion.combine import CombineByPrimitivesRule
    from collage_core.fusion.combiners import (
        DEFAULT_PRIMITIVES,
        JOIN_ANYTHING,
        Combiner,
        ConstantsCombiner,
        KindCombiner,
    )
    from collage_core.fusion.cuts import cut_positions
    from collage_core.fusion.grouping import maximal_regions
    from collage_core.fusion.kernel import kernel_function
    from collage_core.fusion.marked import PrimitiveRule
    from collage_core.fusion.node_rules import OpCallByKindRule, OpPredicateRule
    from collage_core.fusion.partitioning import Partitioning
    from collage_core.fusion.pattern_rules import CompositeRule, DFPatternRule
    from collage_core.fusion.post_dominator import FuseLimits, post_dominator_groups
    from collage_core.fusion.quantised import grown, is_split, quantised_groups
    from collage_core.fusion.regions import RegionsRule, supported_nodes
    from collage_core.fusion.rule import FusionRule, RuleContext, RuleOutcome
    from collage_core.fusion.rule_of_table import default_rule
    from collage_core.fusion.spec import CandidateKernel, FusionSpec
    from collage_core.fusion.sub_graph import SubGraph, SubGraphConfig
    from collage_core.fusion.whole_groups import WholeGroupsRule, with_whole_groups

__all__ = [
    "ANCHOR_PRIMITIVES",
    "CONVOLUTION_PAIRS",
    "DEFAULT_PRIMITIVES",
    "JOIN_ANYTHING",
    "PARALLEL_PRODUCTS",
    "PRODUCT_PAIRS",
    "CandidateBounds",
    "CandidateKernel",
    "CombineByPrimitivesRule",
    "Combiner",
    "CompositeRule",
    "ConcatCombiner",
    "ConstantsCombiner",
    "DFPatternRule",
    "FuseLimits",
    "FusionRule",
    "FusionSpec",
    "HorizontalCombiner",
    "KindCombiner",
    "MaxCoalesceRule",
    "OnlyValidRule",
    "OpCallByKindRule",
    "OpPredicateRule",
    "Partitioning",
    "PrimitiveRule",
    "RegionsRule",
    "RuleContext",
    "RuleOutcome",
    "SplitCombiner",
    "SubGraph",
    "SubGraphConfig",
    "UnionRule",
    "VerticalCombiner",
    "WholeGroupsRule",
    "cut_positions",
    "default_rule",
    "grown",
    "is_split",
    "kernel_function",
    "maximal_regions",
    "merged_neighbours",
    "post_dominator_groups",
    "quantised_groups",
    "supported_nodes",
    "with_whole_groups",
]

__getattr__ = late_names(
    __name__,
    {
        "ANCHOR_PRIMITIVES": "anchors",
        "CONVOLUTION_PAIRS": "anchors",
        "CandidateBounds": "bounds",
        "CandidateKernel": "spec",
        "CombineByPrimitivesRule": "combine",
        "Combiner": "combiners",
        "CompositeRule": "pattern_rules",
        "ConcatCombiner": "arguments",
        "ConstantsCombiner": "combiners",
        "DEFAULT_PRIMITIVES": "combiners",
        "DFPatternRule": "pattern_rules",
        "FuseLimits": "post_dominator",
        "FusionRule": "rule",
        "FusionSpec": "spec",
        "HorizontalCombiner": "anchors",
        "JOIN_ANYTHING": "combiners",
        "KindCombiner": "combiners",
        "MaxCoalesceRule": "coalesce",
        "OnlyValidRule": "combinators",
        "OpCallByKindRule": "node_rules",
        "OpPredicateRule": "node_rules",
        "PARALLEL_PRODUCTS": "anchors",
        "PRODUCT_PAIRS": "anchors",
        "Partitioning": "partitioning",
        "PrimitiveRule": "marked",
        "RegionsRule": "regions",
        "RuleContext": "rule",
        "RuleOutcome": "rule",
        "SplitCombiner": "arguments",
        "SubGraph": "sub_graph",
        "SubGraphConfig": "sub_graph",
        "UnionRule": "combinators",
        "VerticalCombiner": "anchors",
        "WholeGroupsRule": "whole_groups",
        "cut_positions": "cuts",
        "default_rule": "rule_of_table",
        "grown": "quantised",
        "is_split": "quantised",
        "kernel_function": "kernel",
        "maximal_regions": "grouping",
        "merged_neighbours": "coalesce",
        "post_dominator_groups": "post_dominator",
        "quantised_groups": "quantised",
        "supported_nodes": "regions",
        "with_whole_groups": "whole_groups",
    },
)
