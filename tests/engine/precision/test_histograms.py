"""Functions that return activations: in parts of bounded size, and right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir
import pytest

from collage.precision.sensitivity.histograms import parts, returning
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_testing import GraphBuilder

Evaluate = Callable[..., list[Any]]
Parse = Callable[[str], onnx_ir.Model]


def test_a_function_returns_inputs_and_computed_values_in_order(evaluate: Evaluate) -> None:
    g = GraphBuilder("two")
    x = g.input("x", 2, 3)
    hidden = g.op("Relu", x)
    graph = DataflowGraph(g.model(g.op("Neg", hidden)))
    given = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)

    function = returning(graph, [str(hidden.name), "x"])

    assert [spec.shape for spec in function.outputs] == [(2, 3), (2, 3)]
    middle, first = evaluate(function.model, {"x": given})
    np.testing.assert_array_equal(middle, np.maximum(given, 0))
    np.testing.assert_array_equal(first, given)
    assert [str(value.name) for value in graph.model.graph.outputs] != [spec.name for spec in function.outputs]


@pytest.mark.parametrize(
    ("most_bytes", "sizes"), [(1 << 20, [4]), (400, [2, 1, 1]), (300, [1, 1, 1, 1]), (1, [1, 1, 1, 1])]
)
def test_parts_are_of_at_most_some_bytes_or_of_one_value(parsed: Parse, most_bytes: int, sizes: list[int]) -> None:
    graph = DataflowGraph(
        parsed(
            "g (float[5,10] x, float[10,60] w, float[60,10] v) => (float[5,10] y) "
            "{ a = Neg(x) b = MatMul(a, w) y = MatMul(b, v) }"
        )
    )
    names = ["x", "a", "b", "y"]

    found = list(parts(graph, names, most_bytes))

    assert [len(part) for part in found] == sizes
    assert [name for part in found for name in part] == names
    # 200 bytes each, but for one of 1200: with as much beside them, twice the size makes the same parts
    assert [len(part) for part in parts(graph, names[:2], 2 * most_bytes, 200)] == [
        len(part) for part in parts(graph, names[:2], most_bytes)
    ]


def test_a_value_of_unknown_size_is_a_part_of_its_own(parsed: Parse) -> None:
    graph = DataflowGraph(
        parsed("g (float[4] x, int64[1] n) => (float[m] y) { a = Neg(x) b = Tile(a, n) y = Neg(b) c = Neg(x) }")
    )

    assert list(parts(graph, ["a", "c", "b", "a"], 1 << 20)) == [["a", "c"], ["b"], ["a"]]
