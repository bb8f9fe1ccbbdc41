"""From a graph to the kernels it might be cut into."""

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
from collage_core.fusion.combiners import DEFAULT_PRIMITIVES, JOIN_ANYTHING, Combiner, ConstantsCombiner, KindCombiner
from collage_core.fusion.cuts import cut_positions
from collage_core.fusion.default_rule import default_rule
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
