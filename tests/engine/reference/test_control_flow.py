"""Scan as opset 8 had it, values that may be absent, bodies over sequences."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from collage.prepare.steps import prepare
from collage.reference import evaluate

SCAN = """
    <ir_version: 10, opset_import: ["" : 8]>
    g (int64[2] lengths, float[2, 1] start, float[2, 3, 1] x) => (float[2, 1] last, float[2, 3, 1] sums) {
      last, sums = Scan(LENGTHS, start, x) <
        num_scan_inputs = 1, directions = [DIRECTION],
        body = b (float[1] sum, float[1] next) => (float[1] total, float[1] step) {
          total = Add(sum, next)
          step = Identity(total)
        }>
    }"""
X = np.array([[[1], [2], [3]], [[4], [5], [6]]], np.float32)


def scanned(lengths: str, direction: int) -> tuple[list[float], list[list[float]]]:
    text = SCAN.replace("LENGTHS", lengths).replace("DIRECTION", str(direction))
    model = ir.serde.deserialize_model(onnx.parser.parse_model(text))
    feeds = {"lengths": np.array([3, 2], np.int64), "start": np.array([[0], [10]], np.float32), "x": X}
    values = evaluate(prepare(model), feeds).values
    return values["last"][:, 0].tolist(), values["sums"][:, :, 0].tolist()


@pytest.mark.guards(
    "Scan of opset 8 (batches), which ONNX's converter gets wrong", "works, and keeps its opset", area="input"
)
def test_a_scan_of_opset_8_goes_over_each_item_of_a_batch() -> None:
    assert scanned('""', 0) == ([6, 25], [[1, 3, 6], [14, 19, 25]])


def test_a_sequence_of_it_may_end_early_and_go_backwards() -> None:
    assert scanned("lengths", 0) == ([6, 19], [[1, 3, 6], [14, 19, 0]])
    assert scanned('""', 1) == ([6, 25], [[3, 5, 6], [16, 21, 25]])


@pytest.mark.guards("optional values, absent ones too", "work", area="input")
def test_an_optional_value_is_the_value_and_none_without() -> None:
    sequence = ir.TypeAndShape(ir.SequenceType(ir.TensorType(ir.DataType.FLOAT)), None)
    x = ir.val("x", ir.DataType.FLOAT, [2])
    made = ir.node("SequenceConstruct", [x])
    wrapped = ir.node("Optional", made.outputs)
    taken = ir.node("OptionalGetElement", wrapped.outputs)
    empty = ir.Node("", "Optional", [], [ir.AttrTypeProto("type", sequence)])
    asked = ir.node("OptionalHasElement", empty.outputs)
    nodes = {"made": made, "wrapped": wrapped, "taken": taken, "empty": empty, "asked": asked}
    for name, node in nodes.items():
        node.outputs[0].name = name
    graph = ir.Graph([x], [taken.outputs[0], asked.outputs[0]], nodes=list(nodes.values()), opset_imports={"": 18})

    values = evaluate(ir.Model(graph, ir_version=10), {"x": np.array([1, 2], np.float32)}).values

    assert [each.tolist() for each in values["taken"]] == [[1, 2]]
    assert values["empty"] is None
    assert not values["asked"]


@pytest.mark.guards(
    "a StringNormalizer with a locale, accents or stop words inside others, where ONNX's evaluator errs; "
    "SequenceMap over outer values"
)
def test_a_body_over_sequences_sees_what_is_outside_and_gets_tensors_whole() -> None:
    model = ir.serde.deserialize_model(
        onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 21]>
        g (seq(float[n]) s, seq(float[n]) t, float[1] x, float[1] w) => (seq(float[n]) y, seq(float[n]) z) {
          y, z = SequenceMap(s, t, x) <body = b (float[n] a, float[n] b, float[1] c) => (float[n] d, float[n] e) {
            f = Add(a, b)
            d = Mul(f, w)
            e = Sub(b, c)
          }>
        }""")
    )
    feeds = {
        "s": [np.array([1, 2], np.float32), np.array([3], np.float32)],
        "t": [np.array([10, 20], np.float32), np.array([30], np.float32)],
    }

    values = evaluate(model, {**feeds, "x": np.array([5], np.float32), "w": np.array([2], np.float32)}).values

    assert [each.tolist() for each in values["y"]] == [[22, 44], [66]]
    assert [each.tolist() for each in values["z"]] == [[5, 15], [25]]
