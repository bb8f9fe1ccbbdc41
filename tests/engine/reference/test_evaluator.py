from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from collage.reference import evaluate
from collage_core.errors import DeadlineExceededError, EvaluationError, NodeMemoryError


def parse(text: str) -> ir.Model:
    header = '<ir_version: 10, opset_import: ["" : 21, "custom" : 1, "local" : 1]>\n'
    return ir.serde.deserialize_model(onnx.parser.parse_model(header + text))


def test_every_intermediate_value_is_given() -> None:
    model = parse("""g (float[2] x) => (float[2] y) { n = Neg(x)  y = Exp(n) }""")

    values = evaluate(model, {"x": np.array([0, 1], np.float32)}).values

    assert list(values) == ["x", "n", "y"]
    np.testing.assert_allclose(values["y"], np.exp([0, -1]), rtol=1e-6)


def test_only_what_is_asked_for_is_kept() -> None:
    model = parse("""g (float[2] x) => (float[2] y) { n = Neg(x)  y = Exp(n) }""")

    evaluation = evaluate(model, {"x": np.array([0, 1], np.float32)}, keep=lambda name: name == "y")

    assert list(evaluation.values) == ["y"]


def test_if_uses_captured_values_and_nested_branches() -> None:
    model = parse("""
        g (bool c, float[2] x) => (float[2] y) {
          n = Neg(x)
          y = If (c) <
            then_branch = t () => (float[2] a) { a = Abs(n) },
            else_branch = e () => (float[2] b) {
              b = If (c) <
                then_branch = tt () => (float[2] p) { p = Exp(n) },
                else_branch = ee () => (float[2] q) { q = Add(n, x) }>
            }>
        }""")
    x = np.array([1, -2], np.float32)

    for condition, expected in ((True, [1, 2]), (False, [0, 0])):
        values = evaluate(model, {"c": np.array(condition), "x": x}).values
        np.testing.assert_array_equal(values["y"], np.array(expected, np.float32))


LOOP = """
    g (int64 m, float[2] x) => (float[2] last, float[n] sums) {
      one = Constant<value = bool {1}>()
      last, sums = Loop (m, one, x) <body = b (int64 i, bool go, float[2] s)
        => (bool on, float[2] t, float k) {
          on = Identity(go)
          t = Add(s, x)
          k = ReduceSum<keepdims = 0>(t)
      }>
    }"""


@pytest.mark.parametrize("trips", [0, 1, 3])
def test_loop_stacks_scalars_as_the_standard_says(trips: int) -> None:
    values = evaluate(parse(LOOP), {"m": np.array(trips), "x": np.array([1, 2], np.float32)}).values

    np.testing.assert_array_equal(values["last"], np.array([1, 2], np.float32) * (trips + 1))
    assert values["sums"].shape == (trips,)
    np.testing.assert_array_equal(values["sums"], 3.0 * np.arange(2, trips + 2))


def test_scan_runs_backwards_along_another_axis() -> None:
    model = parse("""
        g (float[2] s0, float[2,3] x) => (float[2] s, float[2,3] ys) {
          s, ys = Scan <num_scan_inputs = 1, scan_input_axes = [1], scan_input_directions = [1],
                        scan_output_axes = [1], scan_output_directions = [1],
            body = b (float[2] a, float[2] e) => (float[2] c, float[2] d) {
              c = Add(a, e)  d = Identity(c)
            }> (s0, x)
        }""")
    x = np.arange(6, dtype=np.float32).reshape(2, 3)

    values = evaluate(model, {"s0": np.zeros(2, np.float32), "x": x}).values

    np.testing.assert_array_equal(values["s"], x.sum(axis=1))
    np.testing.assert_array_equal(values["ys"], x[:, ::-1].cumsum(axis=1)[:, ::-1])


def test_model_functions_see_their_attributes() -> None:
    model = parse("""
        g (float[2] x) => (float[2] y) { y = local.scaled <by = 3.0> (x) }
        <domain: "local", opset_import: ["" : 21]>
        scaled <by> (a) => (b) { c = Constant <value_float: float = @by> ()  b = Mul(a, c) }
        """)

    values = evaluate(model, {"x": np.array([1, 2], np.float32)}).values

    np.testing.assert_array_equal(values["y"], np.array([3, 6], np.float32))


def test_operators_defined_as_functions_are_expanded() -> None:
    model = parse("""g (float[1,4,2] x, float[4] s, float[4] b) => (float[1,4,2] y) {
        y = GroupNormalization <num_groups = 2> (x, s, b) }""")
    x = np.random.default_rng(0).standard_normal((1, 4, 2)).astype(np.float32)

    y = evaluate(model, {"x": x, "s": np.ones(4, np.float32), "b": np.zeros(4, np.float32)})

    groups = x.reshape(2, 4)
    spread = np.sqrt(groups.var(axis=1, keepdims=True) + 1e-5)
    expected = (groups - groups.mean(axis=1, keepdims=True)) / spread
    np.testing.assert_allclose(y.values["y"].reshape(2, 4), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
def test_low_precision_is_computed_in_float32_and_rounded_once(kind: Any) -> None:
    name = "float16" if kind is np.float16 else "bfloat16"
    model = parse(f"g ({name}[8,256] x, {name}[256,8] w) => ({name}[8,8] y) {{ y = MatMul(x, w) }}")
    random = np.random.default_rng(0)
    x, w = random.standard_normal((8, 256)), random.standard_normal((256, 8))
    x, w = x.astype(kind), w.astype(kind)

    y = evaluate(model, {"x": x, "w": w}).values["y"]

    assert y.dtype == kind
    exact = x.astype(np.float64) @ w.astype(np.float64)
    limit = np.finfo(np.float16).eps if kind is np.float16 else 2.0**-7
    np.testing.assert_allclose(y.astype(np.float64), exact, rtol=float(limit), atol=1e-4)


def test_a_node_without_implementation_is_computed_by_the_fallback_and_marked() -> None:
    model = parse("""g (float[2] x) => (float[2] y) {
        n = Neg(x)  [odd] t = custom.Twice(n)  y = Abs(t) }""")

    def fallback(node_model: ir.Model, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        assert [node.op_type for node in node_model.graph] == ["Twice"]
        assert [value.name for value in node_model.graph.inputs] == ["n"]
        return {"t": 2 * inputs["n"]}

    evaluation = evaluate(model, {"x": np.array([1, -2], np.float32)}, fallback=fallback)

    np.testing.assert_array_equal(evaluation.values["y"], np.array([2, 4], np.float32))
    assert list(evaluation.unchecked) == ["odd"]
    assert "custom" in evaluation.unchecked["odd"]


def test_without_fallback_the_node_is_named() -> None:
    model = parse("""g (float[2] x) => (float[2] y) { [odd] y = custom.Twice(x) }""")

    with pytest.raises(EvaluationError, match="odd") as caught:
        evaluate(model, {"x": np.array([1, 2], np.float32)})

    assert caught.value.op_type == "custom::Twice"


def test_the_deadline_stops_an_endless_loop() -> None:
    model = parse("""g (float[2] x) => (float[2] y) {
        one = Constant<value = bool {1}>()
        y = Loop (, one, x) <body = b (int64 i, bool go, float[2] s) => (bool on, float[2] t) {
          on = Identity(go)  t = Neg(s) }> }""")

    with pytest.raises(DeadlineExceededError):
        evaluate(model, {"x": np.array([1, 2], np.float32)}, deadline_s=0.05)


def test_a_missing_input_is_named() -> None:
    model = parse("""g (float[2] x) => (float[2] y) { y = Neg(x) }""")

    with pytest.raises(EvaluationError, match="'x'"):
        evaluate(model, {})


@pytest.mark.parametrize("words", [np.array(["1", "0"]), np.array(["1", "0"], object)], ids=["width", "objects"])
def test_strings_are_compared_whatever_numpy_type_they_come_in(words: Any) -> None:
    model = parse("""g (string[2] words, int64[2] ids) => (bool[2] a, bool[2] b) <string[1] one = {"1"}> {
        made = Cast<to = 8>(ids)  a = Equal(words, one)  b = Equal(made, one) }""")

    values = evaluate(model, {"words": words, "ids": np.array([0, 1])}).values

    assert [values["a"].tolist(), values["b"].tolist()] == [[True, False], [False, True]]


def test_sequences_and_strings_pass_through() -> None:
    model = parse("""g (float[2] x) => (float[4] y) {
        s = SequenceConstruct(x, x)  y = ConcatFromSequence<axis = 0>(s) }""")

    values = evaluate(model, {"x": np.array([1, 2], np.float32)}).values

    np.testing.assert_array_equal(values["y"], np.array([1, 2, 1, 2], np.float32))


@pytest.mark.guards("inputs, or outputs of a node, larger than the machine's memory")
def test_more_than_the_machine_holds_is_refused_before_it_is_tried() -> None:
    model = parse("""g (float[1] x) => (float[9000000, 9000000] y) {
        s = Constant<value_ints = [9000000, 9000000]>()
        y = Expand(x, s)
    }""")

    with pytest.raises(NodeMemoryError, match=r"\(Expand\) needs too much memory: its outputs take 324,000"):
        evaluate(model, {"x": np.array([1], np.float32)}, fallback=lambda *_: pytest.fail("nobody else is asked"))


def test_a_state_that_begins_by_itself_has_the_type_of_what_it_follows() -> None:
    q, k, v = np.random.default_rng(0).standard_normal((3, 1, 2, 4)).astype(np.float16)
    node = onnx.helper.make_node(
        "LinearAttention", ["q", "k", "v"], ["y", "state"], q_num_heads=1, kv_num_heads=1, update_rule="linear"
    )
    info = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT16, [1, 2, 4]) for name in "qkv"]
    outputs = [onnx.helper.make_empty_tensor_value_info(name) for name in ("y", "state")]
    graph = onnx.helper.make_graph([node], "g", info, outputs)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 27)])

    values = evaluate(ir.serde.deserialize_model(model), {"q": q, "k": k, "v": v}).values

    assert (values["y"].dtype, values["state"].dtype) == (np.float16, np.float16)
