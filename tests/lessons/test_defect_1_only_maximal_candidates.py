"""Pruning to maximal candidates loses optima, and two candidates over the same nodes deleted each other."""

from __future__ import annotations

from collections.abc import Sequence

from collage_core.contract import Joins, Target
from collage_core.fusion import (
    CombineByPrimitivesRule,
    CompositeRule,
    DFPatternRule,
    OpCallByKindRule,
    RuleContext,
    SubGraph,
    UnionRule,
)
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.patterns import FusionPattern, is_op
from collage_testing import CandidateView, MockToolchain, chain, partition

# The chain p -> q of the lesson: each toolchain is good at one of them.
COSTS = {
    "a": {("relu_0",): 1.0, ("exp_0",): 10.0, ("relu_0", "exp_0"): 11.0},
    "b": {("relu_0",): 10.0, ("exp_0",): 1.0, ("relu_0", "exp_0"): 11.0},
}


def toolchain(name: str) -> MockToolchain:
    def cost(candidate: CandidateView) -> float:
        return COSTS[name][candidate.nodes]

    return MockToolchain(name, costs_us=cost, operators=["Relu", "Exp"], joins=Joins.NATIVE)


def maximal(sub_graphs: Sequence[SubGraph]) -> list[SubGraph]:
    """What the old pass kept: a candidate leaves if another holds all of its nodes."""
    return [
        one for one in sub_graphs if not any(other is not one and not one.nodes & ~other.nodes for other in sub_graphs)
    ]


def test_each_toolchain_gets_what_it_is_good_at() -> None:
    result = partition(chain("Relu", "Exp"), [toolchain("a"), toolchain("b")])

    assert [(kernel.toolchain, kernel.nodes) for kernel in result.kernels] == [("a", ("relu_0",)), ("b", ("exp_0",))]
    assert result.total_us == 2.0


def test_the_old_way_has_no_plan_as_good() -> None:
    result = partition(chain("Relu", "Exp"), [toolchain("a"), toolchain("b")])
    left = [
        COSTS[name][each.names]
        for name in ("a", "b")
        for each in maximal([candidate.sub_graph for candidate in result.proposals[name].candidates])
    ]

    assert left == [11.0, 11.0]  # one kernel for both of each toolchain, and nothing else to choose from


def test_two_labels_over_the_same_nodes_are_two_candidates() -> None:
    graph = DataflowGraph(chain("Relu", "Exp"))
    pattern = is_op("Exp")(is_op("Relu"))
    labelled = tuple(
        CompositeRule(DFPatternRule(FusionPattern(name=name, pattern=pattern)), name) for name in ("t.one", "t.other")
    )
    context = RuleContext(target=Target(toolchain="t", fingerprint="t 1"))
    rule = CombineByPrimitivesRule(UnionRule((OpCallByKindRule(), *labelled)))

    found = [each for each in rule.candidates(graph, context) if each.nodes == graph.all_mask]

    assert sorted(each.label for each in found) == ["", "t.one", "t.other"]
    assert maximal(found) == []  # the old pass deleted each because of another
