"""What ONNX's converter would get wrong stays as it is."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import onnxruntime as ort
import pytest

from collage.prepare.steps import prepare
from collage.reference import evaluate

pytestmark = pytest.mark.guards("Scan of opset 8 (batches), which ONNX's converter gets wrong")


def test_scan_of_opset_8_keeps_its_batch_and_so_its_opset() -> None:
    text = """
        <ir_version: 8, opset_import: ["" : 8]>
        g (float[2, 1] s, float[2, 3, 1] x) => (float[2, 1] y, float[2, 3, 1] z) {
          y, z = Scan("", s, x) <num_scan_inputs = 1, body = b (float[1] a, float[1] n) => (float[1] t, float[1] o) {
            t = Add(a, n)
            o = Identity(t)
          }>
        }"""

    prepared = prepare(ir.serde.deserialize_model(onnx.parser.parse_model(text)))

    assert prepared.opset_imports[""] == 8
    assert [len(node.inputs) for node in prepared.graph] == [3]


@pytest.mark.guards(
    "Resize and Upsample before opset 11, whose coordinates ONNX's converter changes",
    "they keep theirs",
    area="input",
)
@pytest.mark.parametrize("scale", [2.0, 1.5, 1 / 3])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize(("operator", "opset"), [("Upsample", 9), ("Resize", 10)])
def test_resize_keeps_the_coordinates_of_its_opset(operator: str, opset: int, mode: str, scale: float) -> None:
    """Held against ONNX Runtime, which computes the model as given."""
    if operator == "Upsample" and scale < 1:
        pytest.skip("Upsample does not reduce")
    text = f"""
        <ir_version: 8, opset_import: ["" : {opset}]>
        g (float[1, 1, 6, 9] x) => (float[1, 1, h, w] y) <float[4] s = {{1, 1, {scale}, {scale}}}> {{
          y = {operator}<mode = "{mode}">(x, s)
        }}"""
    given = onnx.parser.parse_model(text)
    prepared = prepare(ir.serde.deserialize_model(given))
    x = {"x": np.random.default_rng(0).standard_normal((1, 1, 6, 9)).astype(np.float32)}

    assert prepared.opset_imports[""] == 21
    [right] = ort.InferenceSession(given.SerializeToString()).run(None, x)
    [found] = ort.InferenceSession(ir.serde.serialize_model(prepared).SerializeToString()).run(None, x)
    np.testing.assert_allclose(found, right, atol=1e-6)
    if scale > 1:  # by thirds ONNX Runtime divides in float32, so that elements at a whole position are others
        np.testing.assert_allclose(evaluate(prepared, x).values["y"], right, atol=1e-5)


@pytest.mark.parametrize(
    ("opset", "text"),
    [
        (12, "g (float[2, 3, 4] x) => (float[2, 3, 4] y) { y = Hardmax(x) }"),
        (
            18,
            "g (float[1, 4, 2] x, float[2] s, float[2] b) => (float[1, 4, 2] y)"
            " { y = GroupNormalization<num_groups = 2>(x, s, b) }",
        ),
        (
            11,
            "g (float[1, 1, 2, 2] x, float[0] r) => (float[1, 1, 4, 4] y) <float[4] s = {1, 1, 2, 2}>"
            ' { y = Resize<mode = "nearest", coordinate_transformation_mode = "tf_half_pixel_for_nn">(x, r, s) }',
        ),
    ],
    ids=["Hardmax", "GroupNormalization", "Resize"],
)
def test_what_changed_its_meaning_keeps_its_opset(opset: int, text: str) -> None:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> {text}')

    assert prepare(ir.serde.deserialize_model(model)).opset_imports[""] == opset
