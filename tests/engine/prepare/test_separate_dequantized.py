"""Each reader of a dequantised tensor has a DequantizeLinear of its own."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir
import pytest
from onnx.reference import ReferenceEvaluator

from collage.prepare.steps import prepare


def prepared(graph: str) -> onnx_ir.Model:
    """The prepared model, which is prepared for good and gives what the model gave."""
    proto = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {graph}')
    result = prepare(onnx_ir.from_proto(proto))

    again = prepare(result)
    assert written(again) == written(result)
    feeds = {"x": np.arange(-4, 4, dtype=np.int8)}
    for right, given in zip(
        ReferenceEvaluator(proto).run(None, feeds),
        ReferenceEvaluator(onnx_ir.to_proto(result)).run(None, feeds),
        strict=True,
    ):
        np.testing.assert_array_equal(given, right)
    return result


def written(model: onnx_ir.Model) -> list[tuple[str, list[str]]]:
    """Operators, each with the operators that give what it reads."""
    return [
        (node.op_type, [maker.op_type for value in node.inputs if value is not None and (maker := value.producer())])
        for node in model.graph
    ]


def dequantizers(model: onnx_ir.Model) -> list[list[str]]:
    """Of each, what reads it."""
    return [
        sorted(user.op_type for user, _ in node.outputs[0].uses()) + ["output"] * node.outputs[0].is_graph_output()
        for node in model.graph
        if node.op_type == "DequantizeLinear"
    ]


@pytest.mark.guards("several nodes read one DequantizeLinear", "each gets its own, the numbers stay", area="input")
def test_what_two_nodes_read_is_copied_and_what_is_copied_already_is_not_merged() -> None:
    shared = "{ d = DequantizeLinear(x, s, z) a = Relu(d) b = Neg(d) y = Add(a, b) }"
    twice = "{ d = DequantizeLinear(x, s, z) e = DequantizeLinear(x, s, z) a = Relu(d) b = Neg(e) y = Add(a, b) }"
    head = "g (int8[8] x) => (float[8] y) <float s = {0.5}, int8 z = {1}>"

    assert sorted(dequantizers(prepared(f"{head} {shared}"))) == [["Neg"], ["Relu"]]
    assert sorted(dequantizers(prepared(f"{head} {twice}"))) == [["Neg"], ["Relu"]]


def test_a_node_that_reads_it_twice_needs_it_once() -> None:
    model = prepared(
        "g (int8[8] x) => (float[8] y) <float s = {0.5}, int8 z = {1}> { d = DequantizeLinear(x, s, z) y = Mul(d, d) }"
    )

    assert dequantizers(model) == [["Mul", "Mul"]]


@pytest.mark.guards("several nodes read one DequantizeLinear")
def test_the_caller_and_bodies_go_on_reading_the_first() -> None:
    model = prepared(
        """g (int8[8] x) => (float[8] d, float[8] y, float[8] v) <float s = {0.5}, int8 z = {1}, float zero = {0.0}> {
          d = DequantizeLinear(x, s, z)
          y = Relu(d)
          e = DequantizeLinear<axis=0>(x, s, z)
          total = ReduceSum<keepdims=0>(e)
          positive = Greater(total, zero)
          v = If(positive) <
            then_branch = t () => (float[8] t1) { t1 = Exp(e) },
            else_branch = f () => (float[8] f1) { f1 = Neg(e) } >
        }"""
    )

    assert sorted(dequantizers(model)) == [["Exp", "Neg"], ["ReduceSum"], ["Relu"], ["output"]]
