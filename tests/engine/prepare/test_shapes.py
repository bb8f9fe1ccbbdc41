"""Preparing binds shapes, folds what follows from them, and refuses what cannot be."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from collage.prepare.steps import prepare
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
