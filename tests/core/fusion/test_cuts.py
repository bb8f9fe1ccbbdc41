from __future__ import annotations

import itertools
from collections.abc import Callable

import onnx_ir
from hypothesis import given, settings
from hypothesis import strategies as st

from collage_core.fusion import cut_positions
from collage_core.ir.graph.dataflow import DataflowGraph

Parsed = Callable[..., onnx_ir.Model]


def chain(parsed: Parsed, length: int) -> DataflowGraph:
    body = " ".join(f"v{i + 1} = Softmax(v{i})" for i in range(length))
    return DataflowGraph(parsed(f"g (float[4] v0) => (float[4] v{length}) {{ {body} }}"))


def test_a_heavy_node_is_cut_out(parsed: Parsed) -> None:
    graph = chain(parsed, 8)

    assert cut_positions(graph, 2, [1, 1, 1, 50, 1, 1, 1, 1]) == (3, 4)


def test_equal_nodes_are_balanced(parsed: Parsed) -> None:
    assert cut_positions(chain(parsed, 8), 3, [1.0] * 8) == (2, 4, 6)


@given(st.lists(st.integers(1, 20), min_size=2, max_size=9), st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_the_sum_of_squares_is_the_least(parsed: Parsed, weights: list[int], limit: int) -> None:
    size = len(weights)

    def squares(cuts: tuple[int, ...]) -> int:
        return sum(sum(weights[a:b]) ** 2 for a, b in itertools.pairwise((0, *cuts, size)))

    chosen = cut_positions(chain(parsed, size), limit, [float(weight) for weight in weights])

    every = [c for n in range(limit + 1) for c in itertools.combinations(range(1, size), n)]
    least = min(map(squares, every))
    average = sum(weights) / (min(limit, size - 1) + 1)
    assert squares(chosen) <= least + 0.05 * average**2 * len(chosen) + 1e-9
    assert len(chosen) <= limit


def test_places_many_tensors_cross_are_avoided(parsed: Parsed) -> None:
    graph = DataflowGraph(
        parsed(
            """g (float[4] x) => (float[4] y) {
            a = Softmax(x) b = Softmax(a) c = Softmax(a) d = Softmax(a) e = Sum(a, b, c, d) y = Softmax(e) }"""
        )
    )

    assert cut_positions(graph, 9, max_live=1) == (1, 5)
    assert cut_positions(graph, 9, max_live=3) == (1, 2, 3, 5)


def test_views_share_the_tensor_they_show(parsed: Parsed) -> None:
    graph = DataflowGraph(
        parsed(
            """g (float[2,2] x) => (float[4] y) <int64[1] four = {4}> {
            a = Softmax(x) v = Reshape(a, four) b = Softmax(a) w = Reshape(b, four) y = Mul(v, w) }"""
        )
    )

    assert cut_positions(graph, 9, max_live=1) == (1,)


def test_nothing_to_cut(parsed: Parsed) -> None:
    assert cut_positions(chain(parsed, 1), 5) == ()
    assert cut_positions(chain(parsed, 4), 0) == ()
