"""Regions near a plan's kernels."""

from __future__ import annotations

from collage.explore.exhaustive import begun
from collage.explore.exploration import Exploration
from collage.explore.learning import knowing_nothing
from collage.explore.measuring import measured
from collage.explore.regions import moved_regions, paired_regions, placed_regions, shifted_regions
from collage.measure.wire.outcomes import Failed, Stage
from collage_core.fusion import CandidateKernel
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.search import SearchCandidate
from collage_testing import GraphBuilder, chain
from tests.engine.exploring import FakeSource, a_target, by_operator, empty_pool, rule_of, setup_of

OPERATORS = ("Relu", "Neg", "Exp", "Tanh", "Abs", "Sin")
GRAPH = DataflowGraph(chain(*OPERATORS, shape=(4, 4)))


def exploration(graph: DataflowGraph = GRAPH) -> Exploration:
    source = FakeSource(by_operator({name: dict.fromkeys(OPERATORS, 1.0) for name in "ab"}))
    return begun(setup_of(source, [rule_of(a_target("a")), rule_of(a_target("b"))]), empty_pool(graph, source))


def kernel(nodes: int) -> SearchCandidate:
    return SearchCandidate(nodes=nodes, target="a", key="k")


def test_a_kernel_is_moved_at_both_ends_by_one_operator() -> None:
    found = shifted_regions(exploration(), [kernel(0b001110)])

    assert {(each.target.name, each.sub_graph.nodes) for each in found} == {
        ("a", nodes) for nodes in (0b011110, 0b001111, 0b001100, 0b000110)
    }


def test_a_kernel_of_all_loses_an_end_and_gains_nothing() -> None:
    found = shifted_regions(exploration(), [kernel(0b111111)])

    assert {each.sub_graph.nodes for each in found} == {0b011111, 0b111110}


def test_a_kernel_takes_in_a_neighbour_of_another_target_and_not_what_is_further() -> None:
    others = [SearchCandidate(nodes=nodes, target="b", key="k") for nodes in (0b011100, 0b100000)]

    found = shifted_regions(exploration(), [kernel(0b000011), *others])

    mine = {each.sub_graph.nodes for each in found if each.target.name == "a"}
    assert mine == {0b000111, 0b000010, 0b000001, 0b011111}
    assert {0b011111, 0b111100} < {each.sub_graph.nodes for each in found if each.target.name == "b"}


def test_a_kernel_takes_in_what_reads_the_same_value() -> None:
    g = GraphBuilder("readers")
    read = g.op("Relu", g.input("x", 4, 4))
    graph = DataflowGraph(g.model(g.op("Exp", read), g.op("Tanh", read), g.op("Sin", read)))

    found = shifted_regions(exploration(graph), [kernel(0b0010)])

    assert {each.sub_graph.nodes for each in found} == {0b0011, 0b0110, 0b1010}


def test_an_operator_that_fails_alone_everywhere_is_placed_within_larger_kernels() -> None:
    def truth(candidate: CandidateKernel) -> float | Failed:
        if candidate.sub_graph.names == ("exp_0",):
            return Failed(stage=Stage.RUN, reason="not alone")
        return 1.0

    source = FakeSource(truth)
    rules = [rule_of(a_target("a")), rule_of(a_target("b"))]
    found = begun(setup_of(source, rules), empty_pool(GRAPH, source))
    alone = [c for c in found.pool if c.sub_graph.names == ("exp_0",)]
    assert len(alone) == 2

    found = measured(found, "measuring one operator", alone)

    regions = placed_regions(found, knowing_nothing(found).beliefs)
    assert any(region.sub_graph.nodes & 0b100 for region in regions)


def test_a_kernel_is_moved_to_every_other_target_that_runs_it() -> None:
    found = moved_regions(exploration(), [kernel(0b001110), SearchCandidate(nodes=0b110000, target="b", key="k")])

    assert [(each.target.name, each.sub_graph.nodes) for each in found] == [("b", 0b001110), ("a", 0b110000)]


def test_a_kernel_is_not_moved_to_a_target_that_does_not_run_all_of_it() -> None:
    source = FakeSource(by_operator({name: dict.fromkeys(OPERATORS, 1.0) for name in "ab"}))
    rules = [rule_of(a_target("a")), rule_of(a_target("b"), refuses=["Exp"])]

    found = moved_regions(
        begun(setup_of(source, rules), empty_pool(GRAPH, source)), [kernel(0b001110), kernel(0b10000)]
    )

    assert [(each.target.name, each.sub_graph.nodes) for each in found] == [("b", 0b10000)]


def test_two_kernels_of_a_target_that_follow_each_other_are_a_pair() -> None:
    other = SearchCandidate(nodes=0b010000, target="b", key="k")

    found = paired_regions(exploration(), [kernel(0b000011), kernel(0b000100), kernel(0b001000), other])

    assert [(each.target.name, each.sub_graph.nodes) for each in found] == [("a", 0b000111), ("a", 0b001100)]


def test_two_kernels_that_read_the_same_value_are_a_pair() -> None:
    g = GraphBuilder("readers")
    read = g.op("Relu", g.input("x", 4, 4))
    graph = DataflowGraph(g.model(g.op("Exp", read), g.op("Tanh", read)))
    kernels = [SearchCandidate(nodes=0b001, target="b", key="k"), kernel(0b010), kernel(0b100)]

    assert [each.sub_graph.nodes for each in paired_regions(exploration(graph), kernels)] == [0b110]


def test_kernels_that_share_nothing_are_no_pair() -> None:
    g = GraphBuilder("apart")
    one, other = g.op("Exp", g.input("x", 4, 4)), g.op("Tanh", g.input("z", 4, 4))
    graph = DataflowGraph(g.model(g.op("Relu", one), g.op("Neg", other)))
    kernels = [SearchCandidate(nodes=1 << graph.index_of(name), target="a", key="k") for name in graph.names]
    names = {frozenset(each.sub_graph.names) for each in paired_regions(exploration(graph), kernels)}

    assert names == {frozenset({"exp_0", "relu_0"}), frozenset({"tanh_0", "neg_0"})}
