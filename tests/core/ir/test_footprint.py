"""What the rest of a model touches between two runs of a kernel."""

from __future__ import annotations

import itertools

import pytest

from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.footprint import CACHE_BYTES, VALUES_BESIDE, bytes_beside
from collage_testing.graphs import GraphBuilder


def dense(*widths: int) -> DataflowGraph:
    """Products by one weight each, of a given width."""
    g = GraphBuilder()
    value = g.input("x", 1, widths[0])
    for layer, (rows, columns) in enumerate(itertools.pairwise(widths)):
        value = g.op("MatMul", value, g.weight(f"w{layer}", rows, columns))
    return DataflowGraph(g.model(value))


def test_each_weight_counts_once() -> None:
    g = GraphBuilder()
    weight = g.weight("w", 8, 8)
    graph = DataflowGraph(g.model(g.op("MatMul", g.op("MatMul", g.input("x", 1, 8), weight), weight)))

    assert graph.weights_bytes == 8 * 8 * 4


@pytest.mark.parametrize(("width", "beside"), [(16, VALUES_BESIDE), (2048, CACHE_BYTES)])
def test_weights_pass_through_the_caches_if_the_model_s_do_not_fit(width: int, beside: int) -> None:
    graph = dense(width, width, width, width)

    assert bytes_beside(graph, 0b001) == bytes_beside(graph, 0b110) == beside


def test_nothing_is_beside_the_whole_model_even_if_views_are_left_out() -> None:
    g = GraphBuilder()
    graph = DataflowGraph(g.model(g.op("Flatten", g.op("Relu", g.input("x", 2, 3, 4)))))

    assert graph.needs_kernel != graph.all_mask
    assert bytes_beside(graph, graph.all_mask) == bytes_beside(graph, graph.needs_kernel) == 0
