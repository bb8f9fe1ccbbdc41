"""A circle is found exactly where nodes cannot be ordered."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collage_core.ir.graph.order import circle, described, is_ordered
from collage_testing import random_model


def graph_of(reads: list[list[int]]) -> ir.Graph:
    """Node `n` reads the outputs of the nodes listed for it."""
    values = [ir.Value(name=f"v{index}") for index in range(len(reads))]
    nodes = [
        ir.node("Sum", [values[other] for other in others], outputs=[values[index]], name=f"n{index}")
        for index, others in enumerate(reads)
    ]
    return ir.Graph([], values[-1:], nodes=nodes, name="g")


def can_be_ordered(reads: list[list[int]]) -> bool:
    left = {index: set(others) for index, others in enumerate(reads)}
    while free := [index for index, others in left.items() if not others & left.keys()]:
        for index in free:
            del left[index]
    return not left


@pytest.mark.guards("nodes in a circle, in a branch too")
@given(
    st.integers(1, 7).flatmap(lambda n: st.lists(st.lists(st.integers(0, n - 1), max_size=3), min_size=n, max_size=n))
)
def test_either_the_nodes_can_be_ordered_or_a_circle_is_found(reads: list[list[int]]) -> None:
    graph = graph_of(reads)

    found = circle(graph)

    assert bool(found) is not can_be_ordered(reads)
    for before, node in zip((found[-1], *found) if found else (), found, strict=False):
        assert before in {value.producer() for value in node.inputs if value is not None}
    assert is_ordered(graph) is all(other < index for index, others in enumerate(reads) for other in others)
    if not found:
        graph.sort()
        assert is_ordered(graph)


def test_models_are_ordered() -> None:
    assert all(is_ordered(random_model(seed).graph) for seed in range(5))


def test_what_a_body_reads_counts() -> None:
    branch = onnx.parser.parse_graph("t () => (float[2] a) { a = Neg(later) }")
    choice = onnx.helper.make_node("If", ["c"], ["y"], "choice", then_branch=branch, else_branch=branch)
    made = onnx.parser.parse_graph("g (bool c, float[2] x) => (float[2] y) { later = Neg(x) }")
    made.node.insert(0, choice)

    graph = ir.from_proto(made)

    assert not is_ordered(graph)
    assert circle(graph) == ()
    graph.sort()
    assert [node.op_type for node in graph] == ["Neg", "If"]


def test_a_long_circle_is_cut_short_in_words() -> None:
    found = circle(graph_of([[9], *([index] for index in range(9))]))

    assert len(found) == 10
    assert described(found).count("->") == 7
    assert "4 more" in described(found)
