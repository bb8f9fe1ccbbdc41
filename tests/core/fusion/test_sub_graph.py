from __future__ import annotations

import random
from collections.abc import Callable

import onnx_ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collage_core.fusion import SubGraph, SubGraphConfig
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits
from collage_core.ir.operators.op_kind import OpPatternKind

Parsed = Callable[..., onnx_ir.Model]

DIAMOND = """g (float[4] x) => (float[4] y) { a = Relu(x) b = Neg(a) c = Exp(a) y = Add(b, c) }"""


@pytest.fixture
def diamond(parsed: Parsed) -> DataflowGraph:
    return DataflowGraph(parsed(DIAMOND))


def paths(graph: DataflowGraph, nodes: int, start: int) -> int:
    """Longest inside path by trying all of them."""
    after = list(iterate_bits(graph.successors[start] & nodes))
    own = 0 if graph.is_host(start) else 1
    return own + max((paths(graph, nodes, index) for index in after), default=0)


@given(st.integers(0, 10_000))
@settings(max_examples=80, deadline=None)
def test_borders_and_depth_agree_with_their_definitions(random_model: Callable[..., onnx_ir.Model], seed: int) -> None:
    graph = DataflowGraph(random_model(seed))
    nodes = graph.completed(random.Random(seed).randrange(1, graph.all_mask + 1))
    if not nodes:
        return
    sub_graph = SubGraph(graph, nodes)
    inside = set(iterate_bits(nodes))
    outside = set(range(len(graph))) - inside
    edges = {(i, j) for i in range(len(graph)) for j in iterate_bits(graph.successors[i])}

    assert set(iterate_bits(sub_graph.inputs)) == {i for i, j in edges if i in outside and j in inside}
    assert set(iterate_bits(sub_graph.outputs)) == {j for i, j in edges if i in inside and j in outside}
    assert set(iterate_bits(sub_graph.exits)) == {
        i for i in inside if graph.outputs_mask >> i & 1 or any((i, j) in edges for j in outside)
    }
    assert sub_graph.depth == max(paths(graph, nodes, index) for index in inside)
    reached = {j for i in inside for j in iterate_bits(graph.descendants[i])}
    reaching = {j for i in inside for j in iterate_bits(graph.ancestors[i])}
    assert sub_graph.is_convex == (not reached & reaching & outside)
    if sub_graph.exits.bit_count() == 1:  # every node reaches an output, and only through the exit
        assert sub_graph.is_convex
        assert not sub_graph.has_taps


def test_validity_gives_the_reason(diamond: DataflowGraph) -> None:
    def reason(nodes: int, config: SubGraphConfig) -> str:
        answer = SubGraph(diamond, nodes).validity(config)
        assert not answer
        return answer.reason

    assert reason(0b1001, SubGraphConfig()) == "a value flows out of it and back in"
    assert reason(0b0110, SubGraphConfig(max_exits=1)) == "2 exits, at most 1 are allowed"
    assert reason(0b0011, SubGraphConfig(allow_taps=False)) == "a value used outside is also used inside"
    assert reason(0b1111, SubGraphConfig(max_depth=2)) == "depth 3, at most 2 is allowed"
    assert reason(0b1000, SubGraphConfig(max_inputs=1)) == "2 inputs, at most 1 are allowed"
    assert SubGraph(diamond, 0b1111).validity(SubGraphConfig(max_exits=1, max_depth=3, max_inputs=1, allow_taps=False))


def test_two_exits_that_feed_nothing_inside_are_no_tap(diamond: DataflowGraph) -> None:
    assert SubGraph(diamond, 0b0110).validity(SubGraphConfig(allow_taps=False))


def test_touching_needs_a_shared_edge_and_a_convex_union(diamond: DataflowGraph) -> None:
    a, b, c, y = (SubGraph(diamond, 1 << index) for index in range(4))

    assert a.touches(b)
    assert b.touches(a)
    assert not b.touches(c)
    assert not a.union(b).touches(y)
    assert a.union(b).union(c).touches(y)


def test_labels_become_parts_of_unions(diamond: DataflowGraph) -> None:
    left = SubGraph(diamond, 0b0011).labelled("mock.pair", {"k": "v"})
    union = left.union(SubGraph(diamond, 0b0100)).union(SubGraph(diamond, 0b1000))

    assert left.union(SubGraph(diamond, 0b0100), SubGraph(diamond, 0b1000)) == union
    [part] = union.composites
    assert (part.label, part.nodes, part.attributes) == ("mock.pair", 0b0011, (("k", "v"),))
    assert union.label == ""
    assert left.structural_hash != SubGraph(diamond, 0b0011).structural_hash
    with pytest.raises(ValueError, match="disjoint"):
        union.union(left)


def test_views_belong_inside_and_not_on_the_border(parsed: Parsed) -> None:
    graph = DataflowGraph(
        parsed(
            """g (float[2,3] x) => (float[6] y) <int64[1] six = {6}> {
            r = Reshape(x, six) a = Relu(r) i = Identity(a) b = Neg(i) y = Identity(b) }"""
        )
    )
    border = SubGraph(graph, graph.all_mask)

    answer = border.validity(SubGraphConfig())
    assert not answer
    assert "view" in answer.reason
    trimmed = border.completed()
    assert trimmed is not None
    assert trimmed.nodes == 0b01110
    assert trimmed.depth == 2
    assert trimmed.kind is OpPatternKind.ELEMENTWISE
    assert SubGraph(graph, 0b00010).union(SubGraph(graph, 0b01000)).nodes == 0b01110
    assert SubGraph(graph, 0b00001).completed() is None
