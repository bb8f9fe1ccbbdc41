"""Quantised products, against the same computed by hand in NumPy and by ONNX's own evaluator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collage_core.ir.operators.quantising import (
    Range,
    SymmetricRange,
    fold_quantised_weights,
    quantisable,
    quantise_products,
    weight_scales,
)
from collage_testing import GraphBuilder

Array = np.ndarray[Any, Any]
Evaluate = Callable[..., list[Any]]

NUMBERS = st.floats(-1e6, 1e6, width=32)


@given(NUMBERS, NUMBERS)
def test_zero_is_exact_and_every_number_of_a_range_is_within_half_a_step(one: float, other: float) -> None:
    span = Range.around(min(one, other), max(one, other))

    steps = np.linspace(span.low, span.high, 1000)
    narrow = np.clip(np.rint(steps / float(span.scale)) + int(span.zero_point), 0, 255)
    wide = (narrow - int(span.zero_point)) * float(span.scale)

    assert span.low <= 0 <= span.high
    assert 0 in (np.arange(256) - int(span.zero_point)) * span.scale
    assert np.abs(wide - steps).max() <= float(span.scale) * 1.001


@given(NUMBERS, NUMBERS)
def test_a_symmetric_range_has_the_same_numbers_and_no_zero_point(one: float, other: float) -> None:
    span = Range.around(min(one, other), max(one, other)).in_form(symmetric=True)

    steps = np.linspace(span.low, span.high, 1000)
    narrow = np.rint(steps / float(span.scale))

    assert isinstance(span, SymmetricRange)
    assert span.zero_point == 0
    assert span.zero_point.dtype == np.int8
    assert np.abs(narrow).max() <= 127, "nothing of the range saturates"
    assert np.abs(narrow * float(span.scale) - steps).max() <= float(span.scale) * 0.501
    assert span.in_form(symmetric=False) == Range(span.low, span.high)
    assert span != Range(span.low, span.high), "kernels are told apart by it"


def test_a_range_without_zero_or_end_is_refused() -> None:
    for low, high in ((1.0, 2.0), (-2.0, -1.0), (float("-inf"), 1.0), (0.0, float("nan"))):
        with pytest.raises(ValueError, match="not finite, or does not contain zero"):
            Range(low, high)


def products() -> onnx_ir.Model:
    """A product of each kind, two that read one value, and some that cannot be quantised."""
    g = GraphBuilder("products")
    x = g.input("x", 1, 3, 6, 6)
    image = g.op("Relu", g.op("Conv", x, g.weight("kernel", 4, 3, 3, 3), g.weight("bias", 4)))
    rows = g.op("Reshape", image, g.constant("rows", np.array([16, 4])))
    one = g.op("MatMul", rows, g.weight("square", 4, 4))
    two = g.op("Gemm", rows, g.weight("turned", 5, 4), transB=1)
    straight = g.op("Gemm", one, g.weight("straight", 4, 5))
    both = g.op("MatMul", two, g.op("Transpose", straight, perm=[1, 0]))
    return g.model(both)


RANGES = {"Conv": Range(-3.0, 3.5), "MatMul": Range(0.0, 4.0), "Gemm": Range(-2.0, 6.0)}


def quantised(model: onnx_ir.Model, *, symmetric: bool = False) -> onnx_ir.Model:
    copy = model.clone()
    chosen = [
        (node, RANGES[node.op_type].in_form(symmetric=symmetric), product)
        for node in copy.graph
        if (product := quantisable(node)) is not None
    ]
    quantise_products(copy.graph, chosen, constants_are_nodes=False)
    return copy


def rounded(array: Array, span: Range) -> Array:
    limits = np.iinfo(span.zero_point.dtype)
    narrow = np.clip(np.rint(array / span.scale) + int(span.zero_point), limits.min, limits.max)
    return ((narrow - int(span.zero_point)) * span.scale).astype(np.float64)


def rounded_weight(array: Array, axis: int) -> Array:
    shape = [1] * array.ndim
    shape[axis] = -1
    scales = weight_scales(array, axis).reshape(shape)
    return (np.clip(np.rint(array / scales), -128, 127) * scales).astype(np.float64)


def test_products_of_an_activation_and_a_constant_can_be_quantised() -> None:
    found = [quantisable(node) for node in products().graph]

    assert [(each.node.op_type, each.axis) for each in found if each] == [
        ("Conv", 0),
        ("MatMul", 1),
        ("Gemm", 0),
        ("Gemm", 1),
    ]


@pytest.mark.parametrize("symmetric", [False, True])
def test_a_quantised_product_is_the_product_of_rounded_operands(evaluate: Evaluate, symmetric: bool) -> None:
    g = GraphBuilder("one")
    x = g.input("x", 7, 4)
    model = g.model(g.op("Gemm", x, g.weight("w", 5, 4), g.weight("b", 5), transB=1))
    given_x = np.random.default_rng(1).normal(size=(7, 4)).astype(np.float32)
    w, b = (np.asarray(model.graph.initializers[name].const_value.numpy()) for name in "wb")  # type: ignore[union-attr]

    [got] = evaluate(quantised(model, symmetric=symmetric), {"x": given_x})

    right = rounded(given_x, RANGES["Gemm"].in_form(symmetric=symmetric)) @ rounded_weight(w, 0).T + b
    np.testing.assert_allclose(got, right, rtol=1e-5, atol=1e-5)
    assert np.abs(got - (given_x @ w.T + b)).max() > 1e-3, "something was rounded"


def test_the_symmetric_form_is_int8_without_zero_points() -> None:
    model = quantised(products(), symmetric=True)

    fold_quantised_weights(model.graph)

    pairs = [node for node in model.graph if node.op_type in ("QuantizeLinear", "DequantizeLinear")]
    assert len(pairs) == 12, "four activations, each in the range of its product, and eight operands"
    for node in pairs:
        narrow, zero = (node.inputs[2], node.inputs[2].const_value)  # type: ignore[union-attr]
        assert narrow is not None
        assert zero is not None
        assert narrow.dtype == onnx_ir.DataType.INT8
        assert not zero.numpy().any()


@pytest.mark.parametrize("symmetric", [False, True])
def test_folded_weights_are_what_onnx_makes_of_them(evaluate: Evaluate, symmetric: bool) -> None:
    feeds = {"x": np.random.default_rng(2).normal(size=(1, 3, 6, 6)).astype(np.float32)}
    model = quantised(products(), symmetric=symmetric)
    [unfolded] = evaluate(model, feeds)

    made = fold_quantised_weights(model.graph)

    assert len(made) == 4
    assert all(model.graph.initializers[name].dtype == onnx_ir.DataType.INT8 for name in made)
    assert not {"kernel", "square", "turned", "straight"} & set(model.graph.initializers), "nobody reads them"
    assert "bias" in model.graph.initializers
    [folded] = evaluate(model, feeds)
    np.testing.assert_array_equal(folded, unfolded)


def test_an_activation_is_quantised_once_and_dequantised_for_each_product() -> None:
    g = GraphBuilder("shared")
    x = g.input("x", 3, 4)
    sum_of = g.op("Add", g.op("MatMul", x, g.weight("a", 4, 4)), g.op("MatMul", x, g.weight("b", 4, 4)))
    model = quantised(g.model(sum_of))

    fold_quantised_weights(model.graph)

    kinds = [node.op_type for node in model.graph]
    assert kinds.count("QuantizeLinear") == 1
    assert kinds.count("DequantizeLinear") == 4


def test_a_weight_of_zeros_stays_zero(evaluate: Evaluate) -> None:
    g = GraphBuilder("zeros")
    x = g.input("x", 2, 3)
    model = g.model(g.op("MatMul", x, g.constant("w", np.zeros((3, 2), np.float32))))

    [got] = evaluate(quantised(model), {"x": np.ones((2, 3), np.float32)})

    assert not got.any()


def test_a_channel_with_next_to_no_weights_has_no_scale_in_which_a_bias_would_overflow() -> None:
    weight = np.array([[127.0, 1.0], [1e-12, -1e-12], [0.0, 0.0]], np.float32)

    np.testing.assert_allclose(weight_scales(weight, 0), np.array([1.0, 1e-3, 1e-3]), rtol=1e-6)
    np.testing.assert_allclose(weight_scales(weight, None), 1.0, rtol=1e-6)
