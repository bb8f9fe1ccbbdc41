"""Preparing keeps control flow whole and right, and takes apart what is decided."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from collage.prepare.steps import prepare
from tests.engine.prepare.preparing import assert_idempotent, assert_same_numbers, check, operators, parse


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
        values = {"c": np.array(condition), "x": np.array([[1, -2, 3], [4, 5, -6]], np.float32)}
        assert_same_numbers(model, prepared, values)


@pytest.mark.guards(
    "sequences and optional values that bodies give", "are no tensors to those who read them", area="input"
)
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
    assert_same_numbers(model, prepared, {"x": np.array([[1, 2, 3]], np.float32)})
    assert_idempotent(prepared)
