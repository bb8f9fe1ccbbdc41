"""From a graph to the kernels it might be cut into."""

from collage_core.fusion.bounds import CandidateBounds
from collage_core.fusion.kernel import kernel_function
from collage_core.fusion.partitioning import Partitioning
from collage_core.fusion.rule import FusionRule, RuleContext, RuleOutcome
from collage_core.fusion.spec import CandidateKernel, FusionSpec
from collage_core.fusion.sub_graph import SubGraph, SubGraphConfig

__all__ = [
    "CandidateBounds",
    "CandidateKernel",
    "FusionRule",
    "FusionSpec",
    "Partitioning",
    "RuleContext",
    "RuleOutcome",
    "SubGraph",
    "SubGraphConfig",
    "kernel_function",
]
