"""Preparing binds shapes, folds what follows from them, and refuses what cannot be."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from collage.prepare.steps import prepare
from collage.reference import evaluate
from collage_core.errors import InputShapeError, ModelError
from tests.engine.prepare.preparing import check, parse

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


def test_a_dimension_may_stay_free_and_its_arithmetic_goes_where_it_says_nothing_else() -> None:
    prepared = prepare(parse(FLATTEN), keep_free=True)

    [reshape] = prepared.graph
    assert reshape.op_type == "Reshape"
    target = reshape.inputs[1]
    assert target is not None
    assert target.const_value is not None
    assert target.const_value.numpy().tolist() == [0, -1]
    assert str(prepared.graph.inputs[0].shape) == "[batch,4,6]"
    for batch in (1, 3):
        x = np.random.default_rng(batch).normal(size=(batch, 4, 6)).astype(np.float32)
        np.testing.assert_array_equal(evaluate(prepared, {"x": x}).values["y"], x.reshape(batch, 24))


def test_what_is_bound_is_bound_everywhere_beside_what_stays_free() -> None:
    model = parse("g (float[n, m] a, float[n, m] b, float[k] c) => (float[n, m] y) { y = Add(a, b) }")

    prepared = prepare(model, input_shapes={"c": [3]}, keep_free=True)
    assert [str(value.shape) for value in prepared.graph.inputs] == ["[n,m]", "[n,m]", "[3]"]

    partly = prepare(
        parse("g (float[n, m] a, float[n] b) => (float[n, m] y) { y = Add(a, a) }"),
        input_shapes={"b": [4]},
        keep_free=True,
    )
    assert [str(value.shape) for value in partly.graph.inputs] == ["[4,m]", "[4]"]
    assert str(partly.graph.outputs[0].shape) == "[4,m]"


@pytest.mark.parametrize(
    ("reshape", "target"),
    [
        # two dimensions that are not the operand's at their axes, so neither follows
        ("s = Shape(x) two = Slice(s, zero, two_, zero) r = Concat <axis = 0> (last, two) y = Reshape(x, r)", None),
        # the target is a number of the input, not its shape
        ("y = Reshape(x, t)", None),
        ("b = Shape <start = 0, end = 1> (x) r = Concat <axis = 0> (b, last) y = Reshape(x, r)", [0, -1]),
        ("c = Shape <start = 1, end = 2> (x) r = Concat <axis = 0> (last, c) y = Reshape(x, r)", [-1, 6]),
    ],
)
def test_only_targets_that_follow_whatever_the_sizes_are_become_constant(
    reshape: str, target: list[int] | None
) -> None:
    model = parse(
        "g (float[batch, 6, k] x, int64[2] t) => (float[p, q] y) <int64[1] zero = {0}, int64[1] two_ = {2}, "
        f"int64[1] last = {{-1}}> {{ {reshape} }}"
    )

    prepared = prepare(model, keep_free=True)

    [node] = [node for node in prepared.graph if node.op_type == "Reshape"]
    found = node.inputs[1].const_value if node.inputs[1] is not None else None
    assert (None if found is None else found.numpy().tolist()) == target


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
