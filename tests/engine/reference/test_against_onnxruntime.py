"""What ONNX Runtime gives is right: windows far larger than the input, and nearest elements at any scale."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir
import pytest
from hypothesis import assume, example, given, settings

from collage.reference import evaluate
from collage.reference.judge import Judge
from collage.reference.operators import standard_operator
from tests.engine.reference.sliding_cases import (
    EXPORTED,
    Case,
    convolution,
    has_windows,
    pooling,
    transposed_convolution,
)
from tests.engine.reference.test_kernels import make_node

pytestmark = pytest.mark.plugins

VERSION = 22


def both(op_type: str, case: Case, outputs: int = 1) -> tuple[Any, Any]:
    """Return the results of the reference and of ONNX Runtime."""
    import onnxruntime

    inputs, attributes = case
    node = make_node(op_type, inputs, outputs, attributes)
    types = [onnx.helper.make_tensor_value_info(f"i{n}", 1, value.shape) for n, value in enumerate(inputs)]
    kinds = [onnx.helper.make_tensor_value_info(f"o{n}", 7 if n else 1, None) for n in range(outputs)]
    model = onnx.helper.make_model(
        onnx.helper.make_graph([node], "one", types, kinds),
        opset_imports=[onnx.helper.make_opsetid("", VERSION)],
        ir_version=10,
    )
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(None, {f"i{n}": value for n, value in enumerate(inputs)})
    return standard_operator(node, VERSION, inputs)(inputs), expected


@given(pooling())
@example(EXPORTED)
@settings(max_examples=50)
def test_pooling(case: tuple[str, Case]) -> None:
    op_type, (inputs, attributes) = case
    kernel = attributes["kernel_shape"]
    if "auto_pad" in attributes:  # it ignores dilations, and refuses strides beyond the kernel
        attributes["dilations"] = [1] * len(kernel)
        attributes["strides"] = [min(s, k) for s, k in zip(attributes["strides"], kernel, strict=True)]
    else:  # it refuses pads beyond the kernel
        attributes["pads"] = [min(p, k - 1) for p, k in zip(attributes["pads"], kernel * 2, strict=True)]
    assume(has_windows(attributes, inputs[0].shape[2:]))

    [found], [expected] = both(op_type, (inputs, attributes))

    assert found.shape == expected.shape
    held = np.isfinite(found)  # not of padding alone, which is undefined
    np.testing.assert_allclose(found[held], expected[held], rtol=1e-5, atol=1e-6)


@given(convolution())
@settings(max_examples=50)
def test_conv(case: Case) -> None:
    [found], [expected] = both("Conv", case)

    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@given(transposed_convolution())
@settings(max_examples=50)
def test_conv_transpose(case: Case) -> None:
    [found], [expected] = both("ConvTranspose", case)

    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rounding", ["floor", "ceil", "round_prefer_floor"])
@pytest.mark.parametrize("coordinates", ["asymmetric", "half_pixel", "pytorch_half_pixel"])
def test_nearest_elements_that_are_placed_in_float32(coordinates: str, rounding: str) -> None:
    import onnxruntime

    attributes = f'mode="nearest", coordinate_transformation_mode="{coordinates}", nearest_mode="{rounding}"'
    x = np.random.default_rng(0).standard_normal((1, 2, 24, 60)).astype(np.float32)
    for scale in (1 / 3, 1 / 7, 2 / 7, 3 / 7, 5 / 7, 1 / 6, 1 / 11, 0.3, 0.6, 1.7, 2.0, 3.0, 0.5):
        rows, columns = (int(extent * np.float32(scale)) for extent in (24, 60))
        values = f"(float[1,2,24,60] x, float[4] s) => (float[1,2,{rows},{columns}] y)"
        text = f'<ir_version: 10, opset_import: ["" : 19]> g {values} {{ y = Resize<{attributes}>(x, , s) }}'
        proto = onnx.parser.parse_model(text)
        model = onnx_ir.serde.deserialize_model(proto)
        inputs = {"x": x, "s": np.array([1, 1, scale, scale], np.float32)}
        run = evaluate(model, inputs, conditioned=True)
        session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
        [made] = session.run(None, inputs)

        judge = Judge.over(model.graph, run, correct=True, relative=1e-3, mismatched=0.0)

        assert judge.verdict("y", made, run.values["y"], run.conditioning["y"]).problem == "", scale
