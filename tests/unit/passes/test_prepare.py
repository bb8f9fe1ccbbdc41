from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from collage_core.errors import InputShapeError, ModelError
from collage_core.passes.prepare import prepare
from collage_core.passes.prepare_opset import TARGET_OPSET
from collage_core.reference import evaluate, relative_error


def parse(text: str, opset: int = 17) -> ir.Model:
    header = f'<ir_version: 8, opset_import: ["" : {opset}, "local" : 1, "custom" : 1]>\n'
    return ir.serde.deserialize_model(onnx.parser.parse_model(header + text))


def operators(model: ir.Model) -> list[str]:
    return [node.op_type for node in model.graph]


def feeds(model: ir.Model, seed: int = 0) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    result = {}
    for value in model.graph.inputs:
        assert value.shape is not None
        assert value.dtype is not None
        array = random.standard_normal([int(dim) for dim in value.shape.numpy()])
        result[str(value.name)] = array.astype(value.dtype.numpy())
    return result


def assert_same_numbers(
    before: ir.Model, after: ir.Model, values: Mapping[str, Any] | None = None, limit: float = 1e-6
) -> None:
    inputs = dict(values or feeds(after))
    expected = evaluate(before, inputs).values
    actual = evaluate(after, inputs).values
    assert [o.name for o in after.graph.outputs] == [o.name for o in before.graph.outputs]
    for output in before.graph.outputs:
        assert relative_error(actual[str(output.name)], expected[str(output.name)]) <= limit


def assert_idempotent(model: ir.Model) -> None:
    again = prepare(model)
    assert ir.serde.serialize_model(again) == ir.serde.serialize_model(model)


def check(text: str, expected: Sequence[str], *, opset: int = 17, shapes: Mapping[str, Any] | None = None) -> ir.Model:
    model = parse(text, opset)
    prepared = prepare(model, input_shapes=shapes)
    assert operators(prepared) == list(expected)
    onnx.checker.check_model(ir.serde.serialize_model(prepared), full_check=True)
    assert_same_numbers(model, prepared)
    assert_idempotent(prepared)
    return prepared


FLATTEN = """
    g (float[batch, 4, 6] x) => (float[n, m] y) {
      s = Shape(x)
      zero = Constant <value = int64 {0}>()
      b = Gather <axis = 0> (s, zero)
      axes = Constant <value = int64[1] {0}>()
      b1 = Unsqueeze(b, axes)
      rest = Constant <value = int64[1] {-1}>()
      target = Concat <axis = 0> (b1, rest)
      y = Reshape(x, target)
    }"""


def test_shape_arithmetic_folds_once_the_input_is_bound() -> None:
    prepared = check(FLATTEN, ["Reshape"], shapes={"x": [2, 4, 6]})

    output = prepared.graph.outputs[0]
    assert output.shape == ir.Shape([2, 24])
    assert prepared.graph.inputs[0].shape == ir.Shape([2, 4, 6])


def test_the_model_given_is_not_touched() -> None:
    model = parse(FLATTEN)
    before = ir.serde.serialize_model(model)

    prepare(model, input_shapes={"x": [2, 4, 6]})

    assert ir.serde.serialize_model(model) == before


def test_an_unbound_dimension_names_the_input_and_the_flag() -> None:
    with pytest.raises(InputShapeError, match=r"batch.*--input-shapes x:\[N,4,6\]") as caught:
        prepare(parse(FLATTEN))

    assert caught.value.input_name == "x"


def test_a_symbol_bound_by_one_input_is_bound_in_all() -> None:
    model = parse("g (float[n, 2] a, float[n, 2] b) => (float[n, 2] y) { y = Add(a, b) }")

    prepared = prepare(model, input_shapes={"a": [3, 2]})

    assert [value.shape for value in prepared.graph.inputs] == [ir.Shape([3, 2])] * 2


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"a": [3, 2], "b": [4, 2]}, "makes n 4"),
        ({"a": [3, 3]}, "contradicts"),
        ({"a": [3]}, "1 dimensions"),
        ({"a": [-1, 2]}, "negative"),
        ({"z": [1]}, "'z': the model has no such input .*'a', 'b'"),
        ({"A": [3, 2]}, "did you mean 'a'"),
        ({"a": [2**61, 2]}, "more elements than there are addresses"),
    ],
)
def test_impossible_shapes_are_refused(shapes: dict[str, list[int]], message: str) -> None:
    model = parse("g (float[n, 2] a, float[n, 2] b) => (float[n, 2] y) { y = Add(a, b) }")

    with pytest.raises(ModelError, match=message):
        prepare(model, input_shapes=shapes)


def tensorflow_padding(channels: int = 3) -> str:
    """Pads computed from the input's shape, as MobileNet ports do, in front of a strided Conv."""
    return f"""
    g (float[b, {channels}, h, w] x) => (float[b, 4, oh, ow] y)
    <float[4, {channels}, 3, 3] k = {{{", ".join(str(i % 7 - 3) for i in range(36 * channels))}}},
     float[4] scale = {{1, 2, 3, 4}}, float[4] shift = {{0, 1, 0, 1}},
     float[4] mean = {{0.5, 0, 1, 2}}, float[4] var = {{1, 2, 3, 4}}> {{
      s = Shape(x)
      i2 = Constant <value = int64 {{2}}>()
      i3 = Constant <value = int64 {{3}}>()
      h0 = Gather(s, i2)
      w0 = Gather(s, i3)
      two = Constant <value = int64 {{2}}>()
      hm = Mod(h0, two)
      wm = Mod(w0, two)
      one = Constant <value = int64 {{1}}>()
      ph = Sub(two, hm)
      pw = Sub(two, wm)
      ph0 = Sub(ph, one)
      pw0 = Sub(pw, one)
      ax = Constant <value = int64[1] {{0}}>()
      u0 = Unsqueeze(ph0, ax)
      u1 = Unsqueeze(pw0, ax)
      u2 = Unsqueeze(ph, ax)
      u3 = Unsqueeze(pw, ax)
      zz = Constant <value = int64[2] {{0, 0}}>()
      pads = Concat <axis = 0> (zz, u0, u1, zz, u2, u3)
      p64 = Cast <to = 7> (pads)
      fill = Constant <value = float {{0}}>()
      padded = Pad <mode = "constant"> (x, p64, fill)
      c = Conv <strides = [2, 2]> (padded, k)
      y = BatchNormalization(c, scale, shift, mean, var)
    }}"""


def test_computed_padding_and_normalisation_become_one_convolution() -> None:
    prepared = check(tensorflow_padding(), ["Conv"], shapes={"x": [1, 3, 8, 9]})

    conv = prepared.graph[0]
    assert list(conv.attributes["pads"].as_ints()) == [1, 0, 2, 1]


def test_pads_that_move_the_contents_stay() -> None:
    check(
        """g (float[1, 1, 4, 4] x) => (float[1, 1, 4, 4] y) {
          pads = Constant <value = int64[8] {0, 0, 1, 0, 0, 0, -1, 0}>()
          y = Pad(x, pads) }""",
        ["Pad"],
    )


@pytest.mark.parametrize("group", [1, 2])
def test_normalisation_folds_into_grouped_transposed_convolutions(group: int) -> None:
    numbers = ", ".join(str(i % 5 - 2) for i in range(4 * (4 // group) * 4))
    check(
        f"""g (float[1, 4, 3, 3] x) => (float[1, 4, 4, 4] y)
        <float[4, {4 // group}, 2, 2] k = {{{numbers}}}, float[4] b = {{1, 2, 3, 4}},
         float[4] scale = {{1, 2, 3, 4}}, float[4] shift = {{0, 1, 0, 1}},
         float[4] mean = {{0.5, 0, 1, 2}}, float[4] var = {{1, 2, 3, 4}}> {{
          c = ConvTranspose <group = {group}> (x, k, b)
          y = BatchNormalization <epsilon = 0.5> (c, scale, shift, mean, var) }}""",
        ["ConvTranspose"],
    )


def test_a_convolution_used_elsewhere_keeps_its_normalisation_apart() -> None:
    check(
        """g (float[1, 1, 3] x) => (float[1, 1, 3] y, float[1, 1, 3] c)
        <float[1, 1, 1] k = {2}, float[1] one = {1.5}, float[1] zero = {0.25}> {
          c = Conv(x, k)
          y = BatchNormalization(c, one, zero, zero, one) }""",
        ["Conv", "BatchNormalization"],
    )


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


def test_a_constant_output_stays_a_constant() -> None:
    check(
        """g (float[2] x) => (float[2] y, int64[1] s) { y = Neg(x)  s = Shape(x) }""",
        ["Neg", "Constant"],
    )


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


def test_functions_are_inlined_except_kernels() -> None:
    text = """g (float[2] x) => (float[2] y) { a = local.twice(x)  y = local.kernel(a) }
    <domain: "local", opset_import: ["" : 17]> twice (p) => (q) { q = Add(p, p) }
    <domain: "local", opset_import: ["" : 17]> kernel (p) => (q) { r = Exp(p)  q = Neg(r) }"""
    model = parse(text)
    kernel = model.functions[("local", "kernel", "")]
    kernel.metadata_props["collage.primitive"] = "1"

    prepared = prepare(model)

    assert operators(prepared) == ["Add", "kernel"]
    assert [node.op_type for node in prepared.functions[("local", "kernel", "")]] == ["Exp", "Neg"]
    assert_same_numbers(model, prepared)
    assert_idempotent(prepared)


def test_an_if_on_a_constant_becomes_its_branch() -> None:
    check(
        """g (float[2, 3] x) => (float[2, 3] y) {
          s = Shape(x)
          i = Constant <value = int64 {0}>()
          d = Gather(s, i)
          two = Constant <value = int64 {2}>()
          c = Equal(d, two)
          b = If (c) <then_branch = t () => (float[2, 3] p) { p = Exp(x) },
                      else_branch = e () => (float[2, 3] q) { q = Neg(x) }>
          y = Abs(b) }""",
        ["Exp", "Abs"],
    )


CONTROL = """
    g (bool c, float[n, 3] x) => (float[n, 3] y, float[k, n, 3] all) {
      three = Constant <value = int64 {3}>()
      yes = Constant <value = bool {1}>()
      last, all = Loop (three, yes, x) <body = l (int64 i, bool go, float[n, 3] s)
        => (bool on, float[n, 3] t, float[n, 3] k) {
          on = Identity(go)
          sh = Shape(x)
          r = Reshape(s, sh)
          t = Add(r, x)
          k = Identity(t)
      }>
      y = If (c) <
        then_branch = a () => (float[n, 3] p) { unused = Exp(last)  p = Neg(last) },
        else_branch = b () => (float[n, 3] q) { z = Identity(last)  q = Abs(z) }>
    }"""


def test_control_flow_is_kept_whole_and_right() -> None:
    model = parse(CONTROL)

    prepared = prepare(model, input_shapes={"x": [2, 3]})

    assert operators(prepared) == ["Loop", "If"]
    loop = prepared.graph[0].attributes["body"].as_graph()
    assert "Reshape" not in [node.op_type for node in loop]
    assert_idempotent(prepared)
    assert prepared.graph.outputs[0].shape == ir.Shape([2, 3])
    for condition in (True, False):
        values = {"c": np.array(condition), "x": np.float32([[1, -2, 3], [4, 5, -6]])}
        assert_same_numbers(model, prepared, values)


def test_sequences_that_bodies_give_are_no_tensors() -> None:
    model = parse(
        """g (float[2, 3] x, bool c, int64 n) => (float[2, 3] y, float[m, 3] z, bool h) <int64 nought = {0}> {
             parts = SplitToSequence<axis = 0>(x)
             mapped = SequenceMap(parts) <body = b (float[1, 3] p) => (float[1, 3] q) { q = Relu(p) }>
             a = ConcatFromSequence<axis = 0>(mapped)
             y = Neg(a)
             grown = Loop(n, c, mapped) <
               body = l (int64 i, bool c_in, seq(float[1, 3]) s) => (bool d, seq(float[1, 3]) t) {
               d = Identity(c_in)
               e = SequenceAt(s, nought)
               t = SequenceInsert(s, e)
             }>
             z = ConcatFromSequence<axis = 0>(grown)
             o = If(c) <then_branch = yes () => (optional(float[2, 3]) u) { u = Optional(x) },
               else_branch = no () => (optional(float[2, 3]) v) { v = Optional(y) }>
             h = OptionalHasElement(o)
           }""",
        opset=18,
    )

    types = {v.name: v.type for node in prepare(model).graph for v in node.outputs if not v.is_graph_output()}

    floats = ir.TensorType(ir.DataType.FLOAT)
    assert types["mapped"] == types["grown"] == ir.SequenceType(floats)
    assert types["o"] == ir.OptionalType(floats)


def test_a_loop_that_grows_its_state_is_not_given_a_static_shape() -> None:
    model = parse("""g (float[1, 3] x) => (float[k, 3] y) {
        three = Constant <value = int64 {3}>()
        yes = Constant <value = bool {1}>()
        y = Loop (three, yes, x) <body = l (int64 i, bool go, float[n, 3] s)
          => (bool on, float[m, 3] t) {
            on = Identity(go)
            sh = Shape(s)
            r = Reshape(s, sh)
            t = Concat <axis = 0> (r, x)
        }>
      }""")

    prepared = prepare(model)

    assert not prepared.graph.outputs[0].shape or not prepared.graph.outputs[0].shape.is_static()
    assert_same_numbers(model, prepared, {"x": np.float32([[1, 2, 3]])})
    assert_idempotent(prepared)


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


def test_data_dependent_shapes_do_not_stop_folding_around_them() -> None:
    prepared = check(
        """g (float[2, 3] x) => (float[k, 3] y) {
          z = NonZero(x)
          s = Shape(x)
          i = Constant <value = int64 {1}>()
          d = Gather(s, i)
          ax = Constant <value = int64[1] {0}>()
          u = Unsqueeze(d, ax)
          any = Constant <value = int64[1] {-1}>()
          t = Concat <axis = 0> (any, u)
          f = Cast <to = 1> (z)
          y = Reshape(f, t) }""",
        ["NonZero", "Cast", "Reshape"],
    )

    shape = prepared.graph.outputs[0].shape
    assert shape is not None
    assert shape[1] == 3


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
