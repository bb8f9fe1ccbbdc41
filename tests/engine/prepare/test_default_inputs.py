"""Inputs with a default value are constants, unless somebody gives a value."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from collage.prepare.default_inputs import default_inputs, without_defaults
from collage.prepare.steps import prepare
from collage.reference import evaluate

pytestmark = pytest.mark.guards(
    "an input with a default value", "a constant, with a note; an input if `--inputs` has a value for it", area="input"
)

X = np.array([1, 2], np.float32)


def model(version: int = 10) -> ir.Model:
    proto = onnx.parser.parse_model(
        f"""<ir_version: {version}, opset_import: ["" : 17]>
        g (float[2] x, float[2] k, float[2] m) => (float[2] y) <float[2] k = {{10, 20}}, float[2] m = {{1, 1}}> {{
          a = Add(x, k)
          y = Mul(a, m)
        }}"""
    )
    return ir.serde.deserialize_model(proto)


def test_they_are_constants() -> None:
    prepared = prepare(model())

    assert [value.name for value in prepared.graph.inputs] == ["x"]
    assert default_inputs(model()) == ("k", "m")
    assert evaluate(prepared, {"x": X}).values["y"].tolist() == [11, 22]


def test_one_for_which_a_value_is_given_is_an_input() -> None:
    given = model()

    freed = without_defaults(given, {"k", "x", "other"})

    assert default_inputs(freed) == ("m",)
    prepared = prepare(freed)
    assert [value.name for value in prepared.graph.inputs] == ["x", "k"]
    assert evaluate(prepared, {"x": X, "k": np.array([5, 5], np.float32)}).values["y"].tolist() == [6, 7]
    assert default_inputs(given) == ("k", "m")
    assert without_defaults(given, {"x"}) is given


def test_weights_that_had_to_be_inputs_are_no_defaults() -> None:
    assert default_inputs(model(version=3)) == ()
