"""From a graph to the kernels it might be cut into."""

from collage_core.fusion.bounds import CandidateBounds
from collage_core.fusion.combinators import OnlyValidRule, UnionRule
from collage_core.fusion.combine import DEFAULT_PRIMITIVES, CombineByPrimitivesRule, KindCombiner
from collage_core.fusion.cuts import cut_positions
from collage_core.fusion.default_rule import default_rule
from collage_core.fusion.grouping import maximal_regions
from collage_core.fusion.kernel import kernel_function
from collage_core.fusion.node_rules import OpCallByKindRule, OpPredicateRule
from collage_core.fusion.partitioning import Partitioning
from collage_core.fusion.pattern_rules import CompositeRule, DFPatternRule
from collage_core.fusion.quantised import grown, is_split, quantised_groups
from collage_core.fusion.regions import RegionsRule, supported_nodes
from collage_core.fusion.rule import FusionRule, RuleContext, RuleOutcome
from collage_core.fusion.spec import CandidateKernel, FusionSpec
from collage_core.fusion.sub_graph import SubGraph, SubGraphConfig
from collage_core.fusion.whole_groups import WholeGroupsRule, with_whole_groups

__all__ = [
    "DEFAULT_PRIMITIVES",
    "CandidateBounds",
    "CandidateKernel",
    "CombineByPrimitivesRule",
    "CompositeRule",
    "DFPatternRule",
    "FusionRule",
    "FusionSpec",
    "KindCombiner",
    "OnlyValidRule",
    "OpCallByKindRule",
    "OpPredicateRule",
    "Partitioning",
    "RegionsRule",
    "RuleContext",
    "RuleOutcome",
    "SubGraph",
    "SubGraphConfig",
    "UnionRule",
    "WholeGroupsRule",
    "cut_positions",
    "default_rule",
    "grown",
    "is_split",
    "kernel_function",
    "maximal_regions",
    "quantised_groups",
    "supported_nodes",
    "with_whole_groups",
]
