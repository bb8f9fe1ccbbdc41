"""Windows far larger than the input: the reference and ONNX Runtime agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import assume, example, given, settings

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
