"""Quantised operators that nobody takes whole, found out before anything is measured or after."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import pytest

from collage.explore.exhaustive import explore_exhaustively
from collage.explore.exploration import ExplorationSetup, Explored
from collage.explore.lazy import explore_lazily
from collage.measure.wire.outcomes import Failed, Stage
from collage_core.candidates.pool import CandidatePool
from collage_core.candidates.proposals import TargetRule, propose, target_rule
from collage_core.contract import Joins
from collage_core.errors import NoCoverError
from collage_core.fusion import CandidateBounds, CandidateKernel, SubGraph, quantised_groups
from collage_core.fusion.rule import FusionRule, RuleContext, RuleOutcome
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits
from collage_core.registry import Toolchain
from collage_testing import MockToolchain
from tests.core.fusion.qdq import QdqBuilder
from tests.engine.exploring import FakeSource, Truth, a_target, empty_pool, rule_of, setup_of

Explore: TypeAlias = Callable[[ExplorationSetup, CandidatePool], Explored]

A, B = a_target("a"), a_target("b")


def two_products() -> DataflowGraph:
    """Two quantised products: `dequantizelinear_0, _1, matmul_0, quantizelinear_1` and so on, and a first quantizer."""
    g = QdqBuilder()
    x = g.q(g.input("x", 4, 4))
    for name in ("w0", "w1"):
        x = g.q(g.op("Relu" if name == "w1" else "Tanh", g.op("MatMul", g.dq(x), g.dq(g.int8(name, 4, 4)))))
    return DataflowGraph(g.model(x))


GRAPH = two_products()
FIRST, SECOND = quantised_groups(GRAPH)


def explored(
    truth: Truth, rules: Sequence[TargetRule], explore: Explore = explore_exhaustively
) -> tuple[Explored, list[tuple[str, int]]]:
    source = FakeSource(truth)
    found = explore(setup_of(source, rules), empty_pool(GRAPH, source))
    return found, [(chosen.target, chosen.nodes) for chosen in found.result.candidates]


def small(candidate: CandidateKernel) -> float:
    """What makes small kernels cheap: the more nodes, the dearer by far."""
    return float(candidate.sub_graph.nodes.bit_count() ** 3)


def test_quantised_operators_are_what_plans_are_made_of() -> None:
    found, path = explored(small, [rule_of(A), rule_of(B)])

    assert [nodes for _, nodes in path] == [0b1, FIRST, SECOND]
    assert not any("fall apart" in sentence for sentence in found.left_out)


@pytest.mark.guards("nobody takes a quantised operator whole, or nobody gets it right")
def test_only_what_no_target_takes_whole_falls_apart() -> None:
    found, path = explored(small, [rule_of(A, refuses=["Tanh"]), rule_of(B, refuses=["MatMul"])])

    assert SECOND in [nodes for _, nodes in path]  # a takes it
    alone = [nodes for _, nodes in path if nodes & FIRST]
    assert len(alone) == FIRST.bit_count()
    assert any(sentence.startswith("1 quantised operators fall apart") for sentence in found.left_out)


@pytest.mark.guards("nobody takes a quantised operator whole, or nobody gets it right")
def test_what_fails_whole_when_it_is_measured_falls_apart() -> None:
    def truth(candidate: CandidateKernel) -> float | Failed:
        if not FIRST & ~candidate.sub_graph.nodes:
            return Failed(stage=Stage.CHECK, reason="wrong numbers")
        return small(candidate)

    found, path = explored(truth, [rule_of(A), rule_of(B)])

    assert [nodes for _, nodes in path if not nodes & FIRST] == [0b1, SECOND]
    assert any(sentence.startswith("1 quantised operators fall apart") for sentence in found.left_out)


@pytest.mark.guards("nobody takes a quantised operator whole, or nobody gets it right")
def test_what_comes_apart_is_searched_lazily_like_anything_else() -> None:
    def truth(candidate: CandidateKernel) -> float | Failed:
        if not FIRST & ~candidate.sub_graph.nodes:
            return Failed(stage=Stage.CHECK, reason="wrong numbers")
        return 100.0 + candidate.sub_graph.nodes.bit_count()

    _, path = explored(truth, [rule_of(A), rule_of(B)], explore_lazily)

    assert len(path) == 2


def test_what_fails_in_pieces_too_is_named() -> None:
    def truth(candidate: CandidateKernel) -> float | Failed:
        if "tanh_0" in candidate.sub_graph.names:
            return Failed(stage=Stage.RUN, reason="no Tanh after all")
        return small(candidate)

    with pytest.raises(NoCoverError) as caught:
        explored(truth, [rule_of(A)])

    assert [GRAPH.names[index] for index in caught.value.nodes] == ["tanh_0"]


@pytest.mark.guards("a plugin's own rule proposes a part of a quantised operator")
def test_a_plugins_own_proposal_grows_to_the_whole_operator() -> None:
    class Own(FusionRule):
        def propose(self, graph: DataflowGraph, context: RuleContext) -> RuleOutcome:
            return RuleOutcome(sub_graphs=tuple(SubGraph(graph, 1 << index) for index in iterate_bits(FIRST)))

    def proposed(joins: Joins) -> tuple[list[int], dict[int, str]]:
        target = a_target("a", joins=joins)
        mock = MockToolchain("a", costs_us={}, targets=[target], rule=lambda target, default: Own())
        found = propose(target_rule(Toolchain("a", mock), target, {}), GRAPH, CandidateBounds())
        return [candidate.sub_graph.nodes for candidate in found.candidates], dict(found.refusals)

    assert proposed(Joins.NATIVE) == ([FIRST], {})
    assert proposed(Joins.NONE)[0] == []
    assert "nothing takes it whole" in proposed(Joins.NONE)[1][GRAPH.index_of("matmul_0")]
