from __future__ import annotations

import random
from collections.abc import Callable

import onnx_ir
from hypothesis import given, settings
from hypothesis import strategies as st

from collage_core.contract import Target
from collage_core.fusion import CandidateKernel, FusionSpec, OpCallByKindRule, Partitioning, SubGraph, maximal_regions
from collage_core.ir.graph.dataflow import DataflowGraph

Parsed = Callable[..., onnx_ir.Model]
SPEC = FusionSpec(name="m", rule=OpCallByKindRule(), targets=(Target(toolchain="m", fingerprint="m 1"),))


@given(st.integers(0, 10_000))
@settings(max_examples=80, deadline=None)
def test_groups_are_a_partitioning_and_keep_to_their_side(
    random_model: Callable[..., onnx_ir.Model], seed: int
) -> None:
    graph = DataflowGraph(random_model(seed, 10))
    supported = random.Random(seed).randrange(graph.all_mask + 1)

    taken, refused = maximal_regions(graph, supported)

    assert all(not group & ~supported for group in taken)
    assert all(not group & graph.needs_kernel & supported for group in refused)
    Partitioning(graph, tuple(CandidateKernel(SubGraph(graph, nodes), SPEC) for nodes in (*taken, *refused)))


def test_what_is_supported_whole_stays_whole(parsed: Parsed) -> None:
    graph = DataflowGraph(parsed("g (float[2] x, float[2] z) => (float[2] p, float[2] q) { p = Relu(x) q = Neg(z) }"))

    assert maximal_regions(graph, graph.all_mask) == ([0b11], [])


def test_a_refused_node_splits_only_what_depends_on_it(parsed: Parsed) -> None:
    # main branch a-b-(refused)-d, side branch s joins at the end: s goes with one of its neighbours
    graph = DataflowGraph(
        parsed(
            "g (float[2] x) => (float[2] y) { a = Relu(x) b = Exp(a) c = TopK(b) s = Neg(x) y = Add(c, s) }".replace(
                "c = TopK(b)", "c = Erf(b)"
            )
        )
    )
    refused = 1 << graph.index_of("Erf_2")

    taken, rest = maximal_regions(graph, graph.all_mask & ~refused)

    assert rest == [refused]
    assert taken == [0b00011, 0b11000]


def test_groups_can_be_confined(parsed: Parsed) -> None:
    graph = DataflowGraph(parsed("g (float[2] x) => (float[2] y) { a = Relu(x) b = Exp(a) c = Neg(b) y = Erf(c) }"))

    assert maximal_regions(graph, 0b1011, within=0b1110) == ([0b0010, 0b1000], [0b0100])
