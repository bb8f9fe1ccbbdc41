"""No kernel takes more memory than its inputs and outputs account for, whatever the attributes are.

Windows as exporters write them may be far larger than what they slide over. Results are compared with the standard's
definitions, element by element, and with ONNX Runtime.
"""

from __future__ import annotations

import itertools
import math
import tracemalloc
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from collage.prepare.steps import prepare
from collage.reference import evaluate
from collage.reference.operators import standard_operator
from tests.engine.reference.sliding_cases import (
    EXPORTED,
    Case,
    convolution,
    convolved,
    inferred,
    meetings,
    padding_of,
    pooled,
    pooling,
    transposed_convolution,
)
from tests.engine.reference.test_kernels import VERSION, floats, make_node, oracle

pytestmark = pytest.mark.guards(
    "attributes far larger than the input: an average over 1280 x 1280 elements of which 7 x 7 exist, dilations, pads, "
    "scales",
    "the reference's memory is a small multiple of inputs and outputs",
    area="input",
)

TIMES = 3
"""Allowed multiple of inputs and outputs, as float64, in which sums are made."""

ROOM_BYTES = 2 << 20


def bounded(op_type: str, inputs: list[Any], outputs: int = 1, **attributes: Any) -> list[Any]:
    """Compute a node as the reference does; fail if it takes too much memory."""
    compute = standard_operator(make_node(op_type, inputs, outputs, attributes), VERSION, inputs)
    tracemalloc.start()
    try:
        results = list(compute(inputs))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    elements = sum(value.size for value in (*inputs, *results) if value is not None)
    assert peak <= TIMES * 8 * elements + ROOM_BYTES, f"{peak:,} bytes for {elements:,} elements"
    return results


@given(pooling())
@example(EXPORTED)
@settings(max_examples=150)
def test_pooling(case: tuple[str, Case]) -> None:
    op_type, (inputs, attributes) = case
    out = inferred(op_type, inputs, **attributes)

    [result] = bounded(op_type, inputs, **attributes)

    assert list(result.shape) == out
    expected = pooled(op_type, inputs[0], attributes, out[2:])
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


@given(pooling(), st.booleans())
@settings(max_examples=80)
def test_the_index_of_a_maximum_is_that_of_its_first_element(case: tuple[str, Case], by_columns: bool) -> None:
    _, ([drawn], attributes) = case
    x: Any = np.round(drawn)  # with ties
    attributes = {name: value for name, value in attributes.items() if name not in ("count_include_pad", "p")}

    values, indices = bounded("MaxPool", [x], 2, storage_order=int(by_columns), **attributes)

    [right] = bounded("MaxPool", [x], **attributes)
    np.testing.assert_array_equal(values, right)
    size: list[int] = list(x.shape[2:])
    out = list(values.shape[2:])
    axes = meetings(attributes, padding_of(attributes, size, out)[: len(size)], size, out)
    for at in itertools.product(*map(range, values.shape)):
        held = [[element for _, element in axis[window]] for axis, window in zip(axes, at[2:], strict=True)]
        if all(held):
            first = next(each for each in itertools.product(*held) if x[*at[:2], *each] == values[at])
            place = np.ravel_multi_index(first, size, order="F" if by_columns else "C")
            assert indices[at] == place + (at[0] * x.shape[1] + at[1]) * math.prod(size)


@given(convolution())
@settings(max_examples=150)
def test_conv(case: Case) -> None:
    inputs, attributes = case

    [result] = bounded("Conv", inputs, **attributes)

    assert list(result.shape) == inferred("Conv", inputs, **attributes)
    np.testing.assert_allclose(result, convolved(inputs, attributes, list(result.shape[2:])), rtol=1e-4, atol=1e-5)


@given(convolution())
@settings(max_examples=50)
def test_conv_of_integers(case: Case) -> None:
    (x, w, _), attributes = case
    x, w = (np.round(value * 30).astype(np.int8) for value in (x, w))

    [result] = bounded("ConvInteger", [x, w, np.int8(3)], **attributes)

    out = list(result.shape[2:])
    np.testing.assert_array_equal(result, convolved([x.astype(int) - 3, w, np.zeros(len(w))], attributes, out))
    one, zero = np.array(1, np.float32), np.int8(0)
    [result] = bounded("QLinearConv", [x, one, np.int8(3), w, one, zero, np.float32(50), zero], **attributes)
    np.testing.assert_allclose(
        result,
        np.clip(convolved([x.astype(int) - 3, w, np.zeros(len(w))], attributes, out) / 50, -128, 127),
        atol=0.501,
    )


@given(transposed_convolution())
@settings(max_examples=150)
def test_conv_transpose(case: Case) -> None:
    inputs, attributes = case

    [result] = bounded("ConvTranspose", inputs, **attributes)

    x, w, bias = (value.astype(np.float64) for value in inputs)
    size, out, group = list(x.shape[2:]), list(result.shape[2:]), attributes["group"]
    assert list(result.shape) == inferred("ConvTranspose", inputs, **attributes)
    # an element of the input is a window over the output
    axes = meetings(attributes, attributes["pads"][: len(size)], out, size)
    expected = np.zeros(result.shape) + bias.reshape(-1, *[1] * len(size))
    into = expected.reshape(len(x), group, -1, *out)
    values, weights = x.reshape(len(x), group, -1, *size), w.reshape(group, -1, *w.shape[1:])
    for at in itertools.product(*map(range, size)):
        for pairs in itertools.product(*(axis[window] for axis, window in zip(axes, at, strict=True))):
            offsets, elements = zip(*pairs, strict=True)
            products = np.einsum("ngc,gcf->ngf", values[(..., *at)], weights[(..., *offsets)])
            into[(..., *elements)] += products
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


@given(
    lengths=st.lists(st.tuples(st.integers(1, 1500), st.integers(1, 1500)), min_size=1, max_size=2),
    mode=st.sampled_from(["nearest", "linear", "cubic"]),
    coordinates=st.sampled_from(["half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize"]),
    antialias=st.booleans(),
    kind=st.sampled_from([np.float32, np.uint8]),
)
@example(lengths=[(2, 900), (900, 2)], mode="linear", coordinates="half_pixel", antialias=False, kind=np.uint8)
@example(lengths=[(1400, 1300)], mode="cubic", coordinates="half_pixel", antialias=True, kind=np.float32)
@settings(max_examples=40)
def test_resize(lengths: list[tuple[int, int]], mode: str, coordinates: str, antialias: bool, kind: Any) -> None:
    size, wanted = map(list, zip(*lengths, strict=True))
    assume(math.prod(size) <= 100_000)
    assume(math.prod(wanted) <= 100_000)
    x = np.clip(floats(0, *size) * 50 + 100, 0, 255).astype(kind)
    roi = np.array([0.1] * len(size) + [0.8] * len(size), np.float32) if "crop" in coordinates else None
    attributes: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": coordinates}
    if mode != "nearest":
        attributes["antialias"] = int(antialias)
    inputs = [x, roi, None, np.array(wanted)]

    [result] = bounded("Resize", inputs, **attributes)

    assert result.dtype == kind
    assert list(result.shape) == wanted


@given(
    op_type=st.sampled_from(["RNN", "GRU", "LSTM"]),
    steps=st.integers(1, 60),
    batch=st.integers(1, 40),
    width=st.integers(1, 80),
    hidden=st.integers(1, 80),
    direction=st.sampled_from(["forward", "reverse", "bidirectional"]),
    layout=st.booleans(),
    clip=st.one_of(st.none(), st.floats(0.1, 1e30)),
    ends=st.booleans(),
)
@settings(max_examples=60)
def test_recurrent(
    op_type: str, steps: int, batch: int, width: int, hidden: int, direction: str, layout: bool, clip: float | None,
    ends: bool,
) -> None:  # fmt: skip
    directions, rows = (2 if direction == "bidirectional" else 1), {"RNN": 1, "GRU": 3, "LSTM": 4}[op_type] * hidden
    x = floats(0, *((batch, steps) if layout else (steps, batch)), width)
    # of weights that are larger, small differences grow from step to step
    inputs = [x, floats(1, directions, rows, width) / width**0.5, floats(2, directions, rows, hidden) / hidden]
    inputs = [value.astype(np.float32) for value in inputs]
    attributes: dict[str, Any] = {"hidden_size": hidden, "direction": direction, "layout": int(layout)}
    if clip is not None:
        attributes["clip"] = clip
    if ends:
        lengths = np.random.default_rng(3).integers(1, steps + 1, batch).astype(np.int32)
        bounded(op_type, [*inputs, None, lengths], 2, **attributes)
    else:
        results = bounded(op_type, inputs, 2, **attributes)
        if clip is None:
            for found, right in zip(results[:2], oracle(op_type, inputs, 2, **attributes), strict=True):
                np.testing.assert_allclose(found, right, rtol=1e-3, atol=1e-5)


USUAL: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    "convolution of images": ("Conv", [floats(0, 2, 64, 56, 56), floats(1, 64, 64, 3, 3)], {"pads": [1] * 4}),
    "depthwise": ("Conv", [floats(0, 1, 96, 56, 56), floats(1, 96, 1, 7, 7)], {"pads": [3] * 4, "group": 96}),
    "pointwise": ("Conv", [floats(0, 1, 256, 56, 56), floats(1, 64, 256, 1, 1)], {}),
    "convolution of videos": ("Conv", [floats(0, 1, 32, 8, 28, 28), floats(1, 32, 32, 3, 3, 3)], {"pads": [1] * 6}),
    "large kernel": ("Conv", [floats(0, 1, 8, 120, 120), floats(1, 1, 8, 60, 60)], {}),
    "many channels to one": (
        "Conv",
        [floats(0, 1, 256, 2, 7, 7), floats(1, 1, 256, 2, 2, 2)],
        {"pads": [0, 150, 150] * 2},
    ),
    "upsampling": ("ConvTranspose", [floats(0, 1, 64, 32, 32), floats(1, 64, 64, 4, 4)], {"strides": [2, 2]}),
    "many kernel elements": ("ConvTranspose", [floats(0, 1, 1, 60, 60), floats(1, 1, 1, 60, 60)], {}),
    "pooling of images": ("MaxPool", [floats(0, 1, 64, 112, 112)], {"kernel_shape": [3, 3], "pads": [1] * 4}),
    "averages": ("AveragePool", [floats(0, 1, 64, 112, 112)], {"kernel_shape": [3, 3], "pads": [1] * 4}),
    "one axis grows, one shrinks": (
        "AveragePool",
        [floats(0, 1, 1, 1, 2000, 20)],
        {"kernel_shape": [2000, 2000, 20], "pads": [1999, 0, 0] * 2},
    ),
    "audio": ("Resize", [floats(0, 1, 1, 64_000), None, np.array([1, 1, 3], np.float32)], {"mode": "linear"}),
    "neighbouring channels": ("LRN", [floats(0, 1, 64, 56, 56)], {"size": 100_001}),
}


@pytest.mark.parametrize("name", USUAL)
def test_shapes_of_models(name: str) -> None:
    op_type, inputs, attributes = USUAL[name]

    bounded(op_type, inputs, **attributes)


@pytest.mark.parametrize("kernel_shape", [[2, 2], [3, 3], [112, 112]])
def test_maxima_of_a_large_image_with_their_indices(kernel_shape: list[int]) -> None:
    bounded("MaxPool", [floats(0, 1, 64, 112, 112)], 2, kernel_shape=kernel_shape)


MODEL = """
    <ir_version: 10, opset_import: ["" : 17]>
    exported (float[1, 1280, 7, 7] features) => (float[1, 10] logits)
    <float[10, 1280] weight, float[1, 1280, 7, 7] constant> {
        pooled = AveragePool <kernel_shape = [1280, 1280], strides = [1280, 1280], ceil_mode = 1> (SOURCE)
        flat = Flatten (pooled)
        product = Gemm <transB = 1> (flat, weight)
        shift = ReduceMean <keepdims = 0> (features)
        logits = Add (product, shift)
    }
"""


@pytest.mark.parametrize("source", ["features", "constant"], ids=["run", "folded into a constant"])
def test_a_model_with_an_exporters_pooling_is_prepared_and_evaluated(source: str) -> None:
    proto = onnx.parser.parse_model(MODEL.replace("SOURCE", source))
    values = {"weight": floats(0, 10, 1280), "constant": floats(1, 1, 1280, 7, 7)}
    proto.graph.ClearField("initializer")
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(value, name) for name, value in values.items())
    features = floats(2, 1, 1280, 7, 7)

    tracemalloc.start()
    try:
        prepared = prepare(onnx_ir.from_proto(proto))
        result = evaluate(prepared, {"features": features}).values["logits"]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert ("AveragePool" in [node.op_type for node in prepared.graph]) == (source == "features")
    averages = (features if source == "features" else values["constant"]).mean(axis=(2, 3))
    np.testing.assert_allclose(result, averages @ values["weight"].T + features.mean(), rtol=1e-4, atol=1e-5)
    assert peak < 32 << 20
