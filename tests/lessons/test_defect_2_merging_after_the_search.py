"""Merging neighbours after the search overlapped on fan-out, made circles, and added costs nobody had measured."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir

from collage.explore.exhaustive import explore_exhaustively
from collage_core.contract import Joins, Target
from collage_core.fusion import CandidateBounds, CandidateKernel, SubGraph, merged_neighbours
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_testing import chain
from tests.core.fusion.runnable import can_run
from tests.engine.exploring import FakeSource, a_target, empty_pool, rule_of, setup_of

Parsed = Callable[..., onnx_ir.Model]
TARGET = Target(toolchain="t", fingerprint="t 1", joins=Joins.ANY)


def merged_in_pairs(kernels: list[SubGraph]) -> list[int]:
    """The old way: every pair that touches is one kernel, each pair looked at by itself."""
    return [
        one.nodes | other.nodes
        for place, one in enumerate(kernels)
        for other in kernels[place + 1 :]
        if one.touches(other)
    ]


def test_where_one_kernel_feeds_two_it_is_merged_once(parsed: Parsed) -> None:
    graph = DataflowGraph(
        parsed("g (float[4] x) => (float[4] p, float[4] q) { a = Relu(x) b = Neg(a) p = Erf(b) q = Exp(a) }")
    )
    kernels = [SubGraph(graph, 1 << graph.index_of(name)) for name in ("Relu_0", "Neg_1", "Exp_3")]
    rest = 1 << graph.index_of("Erf_2")

    merged = [each.nodes for each in merged_neighbours(graph, kernels, [rest], TARGET)]
    old = merged_in_pairs(kernels)

    assert old[0] & old[1], "the old way gave Relu to two kernels"
    assert merged == [kernels[0].nodes | kernels[1].nodes | kernels[2].nodes]
    assert can_run(graph, [*merged, rest])


def test_two_pairs_that_would_wait_for_each_other_are_not_both_merged(parsed: Parsed) -> None:
    graph = DataflowGraph(
        parsed("""g (float[4] x, float[4] z) => (float[4] p, float[4] q) {
        a = Relu(x) b = Neg(z) p = Add(a, b) q = Mul(b, a) }""")
    )
    at = {name: SubGraph(graph, 1 << graph.index_of(name)) for name in graph.names}
    first, second = [at["Relu_0"], at["Add_2"]], [at["Neg_1"], at["Mul_3"]]
    other = Target(toolchain="u", fingerprint="u 1", joins=Joins.ANY)

    old = [*merged_in_pairs(first), *merged_in_pairs(second)]
    mine = merged_neighbours(graph, first, [each.nodes for each in second], TARGET)
    theirs = merged_neighbours(graph, second, [each.nodes for each in mine], other)

    assert len(old) == 2
    assert not can_run(graph, old), "the old way made a circle"
    assert [each.nodes for each in mine] == old[:1]
    assert theirs == second
    assert can_run(graph, [each.nodes for each in (*mine, *theirs)])


def test_what_was_merged_is_measured_before_it_is_believed() -> None:
    """Merged, two kernels cost more than both: the search keeps them apart, and only because it measured."""
    graph = DataflowGraph(chain("Relu", "Neg", "Exp", "Tanh", shape=(64, 64)))
    a, b = a_target("a"), a_target("b")

    def truth(candidate: CandidateKernel) -> float:
        size = candidate.sub_graph.nodes.bit_count()
        if candidate.target == b:
            return 50.0 * size
        return 1.0 if size == 1 else 40.0 * size

    source = FakeSource(truth)
    setup = setup_of(source, [rule_of(a), rule_of(b)], bounds=CandidateBounds(segments=1, max_depth=1))

    result = explore_exhaustively(setup, empty_pool(graph, source)).result

    assert [chosen.nodes for chosen in result.candidates] == [0b0001, 0b0010, 0b0100, 0b1000]
    assert ("a", graph.names) in source.measured
    believed = sum(result.costs_us)  # what adding the parts' costs would have given the merged kernel
    assert believed < truth(CandidateKernel(SubGraph(graph, graph.all_mask), rule_of(a).spec))
