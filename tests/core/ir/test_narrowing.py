"""Products of rounded operands, against the same computed by hand in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir
import pytest

from collage_core.ir.operators.narrowing import Narrowed, Overflow, narrowed_products
from collage_testing import GraphBuilder

F16, BF16, FLOAT = onnx_ir.DataType.FLOAT16, onnx_ir.DataType.BFLOAT16, onnx_ir.DataType.FLOAT
Array = np.ndarray[Any, Any]


def narrowed(model: onnx_ir.Model, dtype: onnx_ir.DataType = F16) -> Narrowed:
    found = narrowed_products(model, dtype)
    assert isinstance(found, Narrowed), found
    return found


def operators(model: onnx_ir.Model) -> list[str]:
    return [node.op_type for node in model.graph]


def block() -> onnx_ir.Model:
    """A linear layer with its normalisation, mask and skip, and a gather by computed indices."""
    g = GraphBuilder("block")
    x = g.input("x", 6, 8)
    product = g.op("Gemm", x, g.weight("w", 8, 8), g.weight("b", 8))
    masked = g.op("Add", product, g.constant("mask", np.array([0, 0, 0, 0, 0, 0, 0, -3e38], np.float32)))
    soft = g.op("Softmax", masked, axis=-1)
    taken = g.op("Gather", g.op("Add", soft, x), g.input("at", 3, dtype=onnx_ir.DataType.INT64))
    return g.model(taken)


def feeds() -> dict[str, Array]:
    rng = np.random.default_rng(3)
    return {"x": rng.normal(size=(6, 8)).astype(np.float32), "at": np.array([4, 0, 5])}


@pytest.mark.parametrize(("dtype", "kind"), [(F16, np.float16), (BF16, ml_dtypes.bfloat16)])
def test_two_operands_are_rounded_and_everything_else_is_float32(
    dtype: onnx_ir.DataType, kind: Any, evaluate: Callable[..., list[Any]]
) -> None:
    model, given = block(), feeds()
    made = narrowed(model, dtype).model

    [got] = evaluate(made, given)

    w, b = (np.asarray(model.graph.initializers[name].const_value.numpy()) for name in "wb")  # type: ignore[union-attr]
    rounded = [each.astype(kind).astype(np.float64) for each in (given["x"], w)]
    scores = rounded[0] @ rounded[1] + b
    scores[:, -1] -= 3e38
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    right = (powers / powers.sum(axis=1, keepdims=True) + given["x"])[given["at"]]
    np.testing.assert_allclose(got, right, rtol=0, atol=1e-6)
    assert not np.allclose(got, evaluate(model, given)[0], rtol=0, atol=1e-6)
    assert [value.dtype for value in (*made.graph.inputs, *made.graph.outputs)] == [
        FLOAT,
        onnx_ir.DataType.INT64,
        FLOAT,
    ]
    assert {node.op_type for node in made.graph} == {"Cast", "Gemm", "Add", "Softmax", "Gather"}


def test_a_weight_is_converted_once_and_held_in_the_type() -> None:
    model = block()

    found = narrowed(model)

    assert found.weights == {"w.float16": "w"}
    assert "w" not in found.model.graph.initializers  # nobody reads it any more
    held = found.model.graph.initializers["w.float16"].const_value
    assert held is not None
    assert held.dtype == F16
    original = model.graph.initializers["w"].const_value
    assert original is not None
    np.testing.assert_array_equal(held.numpy(), original.numpy().astype(np.float16))
    assert list(model.graph.initializers) == ["w", "b", "mask"]  # the model given is as it was


def test_a_weight_that_is_added_too_stays_beside_its_conversion() -> None:
    g = GraphBuilder()
    w = g.weight("w", 4, 4)
    model = g.model(g.op("Add", g.op("MatMul", g.input("x", 4, 4), w), w))

    assert set(narrowed(model).model.graph.initializers) == {"w", "w.float16"}


def test_a_value_that_several_products_read_is_rounded_once() -> None:
    g = GraphBuilder()
    x = g.input("x", 4, 4)
    model = g.model(g.op("MatMul", x, x), g.op("MatMul", g.weight("w", 4, 4), x))

    made = narrowed(model).model

    assert operators(made).count("Cast") == 3  # x there and back, w back


def test_rounding_twice_rounds_once() -> None:
    once = narrowed(block()).model

    assert operators(narrowed(once).model) == operators(once)


def test_what_is_no_product_of_float32_stays_as_it_is() -> None:
    g = GraphBuilder()
    halves = g.op("MatMul", g.input("x", 4, 4, dtype=F16), g.input("z", 4, 4, dtype=F16))
    doubles = g.op("MatMul", g.input("d", 4, 4, dtype=onnx_ir.DataType.DOUBLE), g.constant("e", np.eye(4)))
    model = g.model(halves, doubles, g.op("Exp", g.input("f", 4)))

    assert operators(narrowed(model).model) == operators(model)


def test_products_of_integers_stay_as_they_are_if_they_are_to() -> None:
    g = GraphBuilder()
    scale, zero = g.constant("s", np.float32(0.1)), g.constant("z", np.int8(0))
    x = g.op("DequantizeLinear", g.op("QuantizeLinear", g.input("x", 4, 4), scale, zero), scale, zero)
    w = g.op("DequantizeLinear", g.constant("w", np.ones((4, 4), np.int8)), scale, zero)
    model = g.model(g.op("MatMul", x, w), g.op("MatMul", x, g.weight("v", 4, 4)))

    kept, all_of_them = (narrowed_products(model, F16, keep_quantised=keep) for keep in (True, False))

    assert isinstance(kept, Narrowed)
    assert isinstance(all_of_them, Narrowed)
    assert operators(kept.model).count("Cast") == 3, "x there and back, v back"
    assert operators(all_of_them.model).count("Cast") == 5


@pytest.mark.parametrize(
    ("number", "fits"),
    [(65504.0, True), (65519.0, True), (-65520.0, False), (1e30, False), (float("inf"), True), (float("nan"), True)],
)
def test_a_weight_out_of_range_is_named(number: float, fits: bool) -> None:
    """65520 is the middle between float16's largest number and what would be the next, and ties are rounded up."""
    g = GraphBuilder()
    weight = np.ones((4, 4), np.float32)
    weight[1, 2] = number
    model = g.model(g.op("MatMul", g.input("x", 4, 4), g.constant("heavy", weight)))

    found = narrowed_products(model, F16)

    assert isinstance(found, Narrowed) is fits
    if isinstance(found, Overflow):
        assert (found.weight, found.magnitude, found.largest) == ("heavy", abs(float(np.float32(number))), 65504.0)


def test_only_what_is_multiplied_has_to_be_in_range() -> None:
    g = GraphBuilder()
    bias = np.full(4, 1e30, np.float32)
    model = g.model(g.op("Gemm", g.input("x", 4, 4), g.weight("w", 4, 4), g.constant("b", bias)))

    assert isinstance(narrowed_products(model, F16), Narrowed)
