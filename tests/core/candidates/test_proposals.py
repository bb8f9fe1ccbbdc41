from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any, cast

import pytest

from collage_core.candidates.proposals import TargetRule, propose, target_rule, worthwhile
from collage_core.contract import Joins
from collage_core.errors import PluginError
from collage_core.fusion import CandidateBounds, CandidateKernel, FusionRule, RuleContext, RuleOutcome, SubGraph
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.registry import Toolchain
from collage_testing import MockToolchain, chain
from collage_testing.graphs import GraphBuilder
from tests.core.candidates.making import a_target, kernel, rule_of

A = a_target("a")
BOUNDS = CandidateBounds.preset("quick")


def names(candidates: Iterable[CandidateKernel]) -> set[tuple[str, ...]]:
    return {candidate.sub_graph.names for candidate in candidates}


def structure(sub_graph: SubGraph) -> str:
    return sub_graph.structural_hash


def layers() -> DataflowGraph:
    """Three products of growing size, an activation after each: `matmul_2` is most of the work."""
    g = GraphBuilder()
    value = g.input("x", 4, 8)
    for number, (k, n) in enumerate(((8, 16), (16, 256), (256, 512))):
        value = g.op("Relu", g.op("MatMul", value, g.weight(f"w{number}", k, n)))
    return DataflowGraph(g.model(value))


def test_the_operators_with_most_work_are_measured_first() -> None:
    graph = layers()
    single = [kernel(graph, A, name) for name in graph.names]

    assert names(worthwhile(graph, single, structure, 2)) == {("matmul_1",), ("matmul_2",)}


def test_repeated_operators_count_as_one_with_the_work_of_all() -> None:
    graph = DataflowGraph(chain("Tanh", *["Neg"] * 30, "Relu", shape=(64, 64)))
    single = [kernel(graph, A, name) for name in graph.names]

    assert names(worthwhile(graph, single, structure, 1)) == {(f"neg_{number}",) for number in range(30)}
    assert len(worthwhile(graph, single, structure, 2)) == 31  # a Tanh is the work of ten others, not of thirty


def test_half_as_many_groups_are_measured_those_with_most_work_first() -> None:
    graph = layers()
    library = a_target("library", joins=Joins.NATIVE)
    groups = [
        kernel(graph, library, *group)
        for group in (("matmul_0", "relu_0"), ("matmul_1", "relu_1"), ("matmul_2", "relu_2"))
    ]

    assert names(worthwhile(graph, groups, structure, 2)) == names(groups[2:])
    assert names(worthwhile(graph, groups, structure, 4)) == names(groups[1:])


def test_of_candidates_that_begin_at_one_node_the_largest_stands_for_all() -> None:
    graph = layers()
    library = a_target("library", joins=Joins.NATIVE)
    short, long = kernel(graph, library, "matmul_0", "relu_0"), kernel(graph, library, "matmul_0", "relu_0", "matmul_1")

    assert names(worthwhile(graph, [short, long], structure, 8)) == {long.sub_graph.names}


def test_the_whole_graph_in_one_kernel_is_always_measured() -> None:
    """The search takes what it costs for known, and never asks for it."""
    graph = layers()
    library = a_target("library", joins=Joins.NATIVE)
    whole, group = kernel(graph, library, *graph.names), kernel(graph, library, "matmul_1", "relu_1")

    assert names(worthwhile(graph, [group, whole], structure, 0)) == {graph.names}


def test_what_a_target_that_joins_anything_can_take_is_always_measured() -> None:
    graph = layers()
    left, right = kernel(graph, A, "matmul_0", "relu_0"), kernel(graph, A, "matmul_2", "relu_2")
    inside = kernel(graph, A, "matmul_0")

    assert names(worthwhile(graph, [inside, left, right], structure, 0)) == names([left, right])


def test_a_target_that_does_not_mix_proposes_the_whole_model_only() -> None:
    graph = layers()
    spinning = rule_of(a_target("a", options=(("spin", "true"),), mixable=False))

    proposals = propose(spinning, graph, BOUNDS, cuts=(2, 4))

    assert names(proposals.candidates) == {graph.names}
    assert proposals.covered == graph.needs_kernel


def test_a_target_that_does_not_mix_and_refuses_a_node_proposes_nothing() -> None:
    graph = DataflowGraph(chain("Relu", "Exp", "Relu"))
    spinning = rule_of(a_target("a", options=(("spin", "true"),), mixable=False), refuses=["Exp"])

    assert propose(spinning, graph, BOUNDS).candidates == ()


def test_regions_end_at_cuts_and_around_what_is_refused() -> None:
    graph = DataflowGraph(chain("Relu", "Neg", "Exp", "Abs", "Tanh"))

    proposals = propose(rule_of(A, refuses=["Exp"]), graph, BOUNDS, cuts=(1,))

    assert {("relu_0", "neg_0"), ("abs_0", "tanh_0")} <= names(proposals.candidates)
    assert not any("exp_0" in each for each in names(proposals.candidates))
    assert proposals.refusals == {graph.index_of("exp_0"): "a has no Exp"}
    assert proposals.covered == graph.all_mask & ~(1 << graph.index_of("exp_0"))


def test_what_the_library_itself_refuses_is_in_no_candidate() -> None:
    graph = DataflowGraph(chain("Relu", "Exp", "Tanh"))
    exp = graph.index_of("exp_0")

    proposals = propose(rule_of(A, query={exp: "unsupported by the library"}), graph, BOUNDS)

    assert not proposals.covered >> exp & 1
    assert proposals.refusals[exp] == "unsupported by the library"


# A plugin's own rule


def own(outcome: Callable[[DataflowGraph, RuleContext], Any], *, query: dict[int, str] | None = None) -> TargetRule:
    """The rule of a plugin that brings its own."""

    class Own(FusionRule):
        def propose(self, graph: DataflowGraph, context: RuleContext) -> RuleOutcome:
            answer: RuleOutcome = outcome(graph, context)
            return answer

    mock = MockToolchain("a", costs_us={}, targets=[A], rule=lambda target, default: Own())
    return target_rule(Toolchain("a", mock), A, query or {})


def test_a_rule_of_a_plugins_own_is_used() -> None:
    graph = layers()

    proposals = propose(own(lambda g, context: RuleOutcome(sub_graphs=(SubGraph(g, 0b11),))), graph, BOUNDS)

    assert names(proposals.candidates) == {("matmul_0", "relu_0")}


@pytest.mark.guards(
    "a predicate or a plugin's own rule hangs; its rule raises, answers wrongly, or proposes what can be no kernel"
)
@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (lambda g, context: [], "its rule answered with list, not RuleOutcome"),
        (lambda g, context: RuleOutcome(sub_graphs=cast(Any, 3)), "TypeError: 'int' object is not iterable"),
        (
            lambda g, context: RuleOutcome(sub_graphs=cast(Any, (0b1,))),
            "its rule proposed int, not a SubGraph",
        ),
        (lambda g, context: RuleOutcome(sub_graphs=(SubGraph(layers(), 1),)), "not a SubGraph of the graph it was"),
        (
            lambda g, context: RuleOutcome(sub_graphs=(SubGraph(g, 1 << 40),)),
            "a sub-graph has at least one of",
        ),
        (lambda g, context: RuleOutcome(sub_graphs=(SubGraph(g, 0b1001),)), "flows and back in: matmul_0, relu_1"),
        (lambda g, context: RuleOutcome(sub_graphs=(SubGraph(g, 0b11),)), "its own query refuses, within matmul_0"),
        (lambda g, context: RuleOutcome(refusals={99: "no"}), "are not reasons by node index"),
        (lambda g, context: RuleOutcome(refusals=cast(Any, {0: None})), "are not reasons by node index"),
        (
            lambda g, context: RuleOutcome(sub_graphs=cast(Any, itertools.repeat(SubGraph(g, 0b1)))),
            "more than the 4006 sub-graphs that are possible",
        ),
        (lambda g, context: 1 // 0, "ZeroDivisionError"),
    ],
)
def test_a_rule_that_proposes_what_can_be_no_kernel_costs_its_target(
    outcome: Callable[[DataflowGraph, RuleContext], Any], reason: str
) -> None:
    rule = own(outcome, query={1: "no Relu here"})

    with pytest.raises(PluginError, match=reason) as caught:
        propose(rule, layers(), BOUNDS)

    assert (caught.value.toolchain, caught.value.hook) == ("a", "collage_fusion_spec")
