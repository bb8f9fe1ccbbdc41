from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from collage.prepare.opset import TARGET_OPSET
from collage.prepare.steps import prepare
from collage.reference import evaluate, relative_error
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits
from collage_core.ir.values.content import constant_of
from tests.engine.prepare.preparing import assert_idempotent, check, operators, parse


def test_operators_that_do_nothing_disappear() -> None:
    check(
        """g (float[2, 3] x) => (float[2, 3] y) {
          a = Identity(x)
          b = Cast <to = 1> (a)
          d = Dropout(b)
          s = Constant <value = int64[2] {2, 3}>()
          r = Reshape(d, s)
          t = Transpose <perm = [0, 1]> (r)
          one = Constant <value = float {1}>()
          m = Mul(t, one)
          e = Expand(m, s)
          c = Concat <axis = 0> (e)
          n = Neg(c)
          y = Identity(n) }""",
        ["Neg"],
    )


def test_an_output_that_is_an_input_keeps_its_name() -> None:
    check("g (float[2] x) => (float[2] y) { a = Identity(x)  y = Identity(a) }", ["Identity"])


def test_two_outputs_of_one_value_keep_their_names() -> None:
    check(
        "g (float[2] x) => (float[2] y, float[2] z) { y = Neg(x)  z = Identity(y) }",
        ["Neg", "Identity"],
    )


def test_a_constant_output_is_a_view_of_an_initializer() -> None:
    model = check(
        """g (float[2] x) => (float[2] y, int64[1] s) { y = Neg(x)  s = Shape(x) }""",
        ["Neg", "Identity"],
    )

    graph = DataflowGraph(model)
    assert [graph.nodes[index].op_type for index in iterate_bits(graph.needs_kernel)] == ["Neg"]


@pytest.mark.parametrize("given", ["value = float[2] {1.5, 2}", "value_floats = [1.5, 2.0]", "value_ints = [3]"])
def test_nodes_that_read_a_constant_output_read_the_initializer(given: str) -> None:
    dtype = "int64[1]" if "ints" in given else "float[2]"
    model = check(
        f"g ({dtype} x) => ({dtype} y, {dtype} c) {{ c = Constant<{given}>()  y = Add(x, c) }}",
        ["Identity", "Add"],
    )

    [add] = [node for node in model.graph if node.op_type == "Add"]
    assert constant_of(add.inputs[1]) is not None


def test_a_constant_output_of_strings_stays_a_constant() -> None:
    text = """g (float[1] x) => (string[1] s, float[1] y) { s = Constant<value_strings = ["é"]>() y = Neg(x) }"""
    check(text, ["Constant", "Neg"])


def test_constant_strings_become_weights() -> None:
    model = check(
        """g (string[2] x) => (bool[2] y, string[2] z) {
             a = Constant<value_string = "é">()
             b = Constant<value_strings = ["x", ""]>()
             y = Equal(x, a)
             z = StringConcat(x, b)
           }""",
        ["Equal", "StringConcat"],
        opset=21,
    )
    values = evaluate(model, {"x": np.array(["é", "f"], object)}).values
    assert values["y"].tolist() == [True, False]
    assert values["z"].tolist() == ["éx", "f"]


def test_equal_nodes_merge_and_random_ones_do_not() -> None:
    model = parse("""g (float[2] x) => (float[2] y) {
        a = Exp(x)
        b = Exp(x)
        r = RandomNormal <shape = [2]>()
        q = RandomNormal <shape = [2]>()
        u = RandomUniformLike(a)
        v = RandomUniformLike(a)
        s = Sum(a, b, r, q, u, v)
        y = Neg(s) }""")

    prepared = prepare(model)

    counts = [operators(prepared).count(op) for op in ("Exp", "RandomNormal", "RandomUniformLike")]
    assert counts == [1, 2, 2]


@pytest.mark.guards("Dropout in training over a constant", "not folded", area="input")
def test_dropout_in_training_is_not_folded_and_at_inference_is_nothing() -> None:
    model = parse(
        """g (float[4] x) => (float[4] a, float[4] b) <float[4] w = {1, 2, 3, 4}, float half = {0.5}, bool on = {1}> {
             d = Dropout(w, half, on)
             a = Add(x, d)
             e = Dropout(w, half)
             b = Add(x, e)
           }"""
    )
    assert sorted(operators(prepare(model))) == ["Add", "Add", "Dropout"]


def test_custom_operators_stay_and_are_not_merged() -> None:
    model = parse("""g (float[2] x) => (float[2] y) {
        a = custom.Odd(x)  b = custom.Odd(x)  y = Add(a, b) }""")

    assert operators(prepare(model)) == ["Odd", "Odd", "Add"]


def test_dead_nodes_and_unused_weights_are_dropped() -> None:
    prepared = check(
        """g (float[2] x) => (float[2] y) <float[2] w = {1, 2}, float[1] unused = {1}> {
          dead = Exp(x)  y = Mul(x, w) }""",
        ["Mul"],
    )

    assert list(prepared.graph.initializers) == ["w"]


def test_huge_constants_are_not_folded() -> None:
    check(
        """g (float[1] x) => (float[4096, 4096] y) {
          s = Constant <value = int64[2] {4096, 4096}>()
          z = ConstantOfShape(s)
          y = Add(z, x) }""",
        ["ConstantOfShape", "Add"],
    )


def test_quantised_weights_stay_quantised() -> None:
    check(
        """g (float[1, 2] x) => (float[1, 2] y)
        <int8[2, 2] w = {1, 2, 3, 4}, float s = {0.5}, int8 z = {0}> {
          d = DequantizeLinear(w, s, z)
          y = MatMul(x, d) }""",
        ["DequantizeLinear", "MatMul"],
    )


def test_gelu_and_matmul_keep_the_form_toolchains_recognise() -> None:
    check(
        """g (float[1, 4] x) => (float[1, 4] y)
        <float[4, 4] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7}, float[4] b = {1, 2, 3, 4}> {
          m = MatMul(x, w)
          h = Add(m, b)
          r = Constant <value = float {1.41421354}>()
          d = Div(h, r)
          e = Erf(d)
          one = Constant <value = float {1}>()
          a = Add(e, one)
          p = Mul(h, a)
          half = Constant <value = float {0.5}>()
          y = Mul(p, half) }""",
        ["MatMul", "Add", "Div", "Erf", "Add", "Mul", "Mul"],
    )


def test_old_models_get_the_opset_and_lose_initializers_as_inputs() -> None:
    graph = onnx.helper.make_graph(
        [
            onnx.helper.make_node("Squeeze", ["x"], ["s"], axes=[0]),
            onnx.helper.make_node("Dropout", ["s"], ["d"], ratio=0.5),
            onnx.helper.make_node("MatMul", ["d", "w"], ["m"]),
            onnx.helper.make_node("Softmax", ["m"], ["y"], axis=1),
        ],
        "old",
        [
            onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 2, 64]),
            onnx.helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, [64, 64]),
        ],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2, 64])],
        [onnx.numpy_helper.from_array(np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32), "w")],
    )
    model = ir.serde.deserialize_model(
        onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 9)], ir_version=3)
    )

    prepared = prepare(model)

    assert operators(prepared) == ["Squeeze", "MatMul", "Softmax"]
    assert [value.name for value in prepared.graph.inputs] == ["x"]
    assert prepared.opset_imports[""] == TARGET_OPSET
    assert prepared.ir_version == 10
    assert prepared.graph.initializers["w"].const_value is not None
    assert_idempotent(prepared)
    random = np.random.default_rng(1).standard_normal((1, 2, 64)).astype(np.float32)
    scores = random[0] @ onnx.numpy_helper.to_array(graph.initializer[0])
    expected = np.exp(scores - scores.max(axis=1, keepdims=True))
    expected /= expected.sum(axis=1, keepdims=True)
    assert relative_error(evaluate(prepared, {"x": random}).values["y"], expected) < 1e-5


def test_newer_models_are_not_downgraded() -> None:
    model = parse("g (float[2] x) => (float[2] y) { y = Neg(x) }", opset=23)

    assert prepare(model).opset_imports[""] == 23


def test_every_node_and_value_gets_a_unique_name() -> None:
    model = parse("g (float[2] x) => (float[2] y) { a = Exp(x)  b = Neg(a)  y = Add(a, b) }")

    prepared = prepare(model)

    names = [node.name for node in prepared.graph]
    assert all(names)
    assert len(set(names)) == 3


def test_weights_are_shared_with_the_model_given() -> None:
    text = "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Mul(x, w) }"
    model = parse(text, opset=TARGET_OPSET)

    prepared = prepare(model)

    assert prepared.graph.initializers["w"].const_value is model.graph.initializers["w"].const_value
