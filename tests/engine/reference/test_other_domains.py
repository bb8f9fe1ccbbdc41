"""ONNX's domains besides the default one."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from collage.prepare.steps import prepare
from collage.reference import evaluate

pytestmark = pytest.mark.guards(
    "operators of `ai.onnx.preview`, `ai.onnx.preview.training`, `ai.onnx.ml`",
    "the reference computes them",
    area="input",
)


def parse(text: str) -> ir.Model:
    imports = '"" : 21, "ai.onnx.ml" : 3, "ai.onnx.preview" : 1, "ai.onnx.preview.training" : 1'
    return ir.serde.deserialize_model(onnx.parser.parse_model(f"<ir_version: 10, opset_import: [{imports}]>\n{text}"))


def test_a_step_of_training_is_computed() -> None:
    model = parse("""
        g (float r, int64 t, float[2] x, float[2] g, float[2] v) => (float[2] x1, float[2] v1) {
          x1, v1 = ai.onnx.preview.training.Momentum <
            alpha = 0.5, beta = 1.0, mode = "standard", norm_coefficient = 0.0
          > (r, t, x, g, v)
        }""")
    feeds = {
        "r": np.float32(0.5),
        "t": np.int64(1),
        "x": np.array([1, 2], np.float32),
        "g": np.array([2, 4], np.float32),
        "v": np.array([2, 0], np.float32),
    }

    values = evaluate(prepare(model), feeds).values

    assert values["v1"].tolist() == [3, 4]
    assert values["x1"].tolist() == [-0.5, 0]


def test_a_body_of_another_domain_s_operator_is_computed() -> None:
    model = parse("""
        g (float[1, 1, 2, 2] q, float[1, 1, 2, 2] k, float[1, 1, 2, 2] v) => (float[1, 1, 2, 2] y) {
          y = ai.onnx.preview.FlexAttention <
            score_mod = b (float[1, 1, 2, 2] scores) => (float[1, 1, 2, 2] changed) { changed = Sub(scores, scores) }
          > (q, k, v)
        }""")
    q, k, v = np.random.default_rng(0).standard_normal((3, 1, 1, 2, 2)).astype(np.float32)

    values = evaluate(prepare(model), {"q": q, "k": k, "v": v}).values

    np.testing.assert_allclose(values["y"], np.repeat(v.mean(axis=2, keepdims=True), 2, axis=2), rtol=1e-5)


def test_strings_of_an_operator_are_objects_as_everywhere() -> None:
    model = parse("""
        g (int64[2] x) => (string[2] y) {
          y = ai.onnx.ml.LabelEncoder <keys_int64s = [1, 2], values_strings = ["a", "bc"]> (x)
        }""")

    values = evaluate(prepare(model), {"x": np.array([2, 1], np.int64)}).values

    assert (values["y"].dtype, values["y"].tolist()) == (np.dtype(object), ["bc", "a"])
