"""Every form against ONNX's reference, by an emulation that knows the source's text and what arguments mean."""

from __future__ import annotations

from typing import Any

import pytest

from .cases import ACTIVATIONS, BFLOAT16, FLOAT16, convolution, product
from .checking import TOLERANCES, check_numbers
from .machine import TF32

WINDOWS: dict[str, dict[str, Any]] = {
    "plain": {},
    "pads": {"attributes": {"pads": [1, 1, 1, 1]}},
    "pads that differ": {"attributes": {"pads": [0, 1, 2, 1]}},
    "strides and dilations": {"attributes": {"strides": [2, 1], "dilations": [1, 2], "pads": [1, 2, 1, 2]}},
    "same, the odd one behind": {"attributes": {"auto_pad": "SAME_UPPER", "strides": [2, 2]}},
    "same, the odd one before": {"attributes": {"auto_pad": "SAME_LOWER", "strides": [2, 2]}},
    "one axis": {"x": (2, 8, 9), "kernel": (4, 8, 3), "attributes": {"strides": [2], "pads": [1, 0]}},
    "one by one": {"kernel": (4, 8, 1, 1)},
    "one pixel left": {"x": (2, 8, 3, 3)},
    "one channel": {"x": (2, 1, 6, 5), "kernel": (4, 1, 3, 3)},
    "one filter": {"kernel": (1, 8, 3, 3)},
    "a computed filter": {"computed": True},
}


@pytest.mark.parametrize(("name", "after"), [*((name, True) for name in ACTIVATIONS), ("gelu", False), ("clip", False)])
def test_every_activation_follows_a_product_alone_or_before_a_residual(name: str, after: bool) -> None:
    parts: dict[str, Any] = {"after": (3, 8)} if after else {"before": (3, 8)}

    labels, _ = check_numbers(product(ACTIVATIONS[name], bias=(8,), **parts))

    assert f"cutlass.matmul_{name}" in labels
    assert (f"cutlass.matmul_{name}_residual" in labels) == after


@pytest.mark.parametrize("activation", ["", "Silu", "HardTanh"])
def test_columns_are_scaled_before_the_bias(activation: str) -> None:
    suffix = {"": "", "Silu": "_silu", "HardTanh": "_clip"}[activation]

    assert f"cutlass.matmul{suffix}_scaled" in check_numbers(product(activation, scale=(8,), bias=(8,)))[0]
    model = convolution(activation, scale=(16, 1, 1), bias=(16, 1, 1))
    assert f"cutlass.conv{suffix}_scaled" in check_numbers(model)[0]


@pytest.mark.parametrize(
    "case",
    [
        {"turned": True},
        {"a": (2, 3, 16), "bias": (8,), "before": (2, 3, 8)},
        {"a": (2, 3, 5, 16), "b": (2, 3, 16, 4), "after": (2, 3, 5, 4)},
        {"a": (2, 3, 5, 16), "b": (2, 3, 16, 4), "turned": True, "scale": (4,)},
        {"a": (5, 16), "b": (3, 16, 4)},
        {"a": (3, 7), "b": (7, 5)},
    ],
)
def test_products_of_all_layouts_are_right(case: dict[str, Any]) -> None:
    labels, _ = check_numbers(product("Gelu", **case))

    assert any(label.startswith("cutlass.matmul_gelu") for label in labels)


@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16])
def test_sixteen_bit_products_and_convolutions_are_right(dtype: Any) -> None:
    tolerance = TOLERANCES[dtype.name]

    assert check_numbers(product("Silu", dtype=dtype, after=(3, 8), constant=True), tolerance=tolerance)[0]
    assert check_numbers(convolution("Silu", dtype=dtype, inside=True), tolerance=tolerance)[0]


def test_tf32_is_off_by_its_own_rounding_and_by_no_more() -> None:
    model = product("Silu", a=(16, 64), b=(64, 32))

    assert "cutlass.matmul_silu" in check_numbers(model, TF32, tolerance=2e-3)[0]
    with pytest.raises(AssertionError):
        check_numbers(model, TF32, tolerance=1e-6)


@pytest.mark.parametrize("window", WINDOWS)
def test_every_window_is_right(window: str) -> None:
    labels, _ = check_numbers(convolution("Relu", inside=True, **WINDOWS[window]))

    assert {"cutlass.conv", "cutlass.conv_relu"} <= set(labels)


def test_residuals_of_images_are_turned_like_the_images() -> None:
    assert "cutlass.conv_relu" in check_numbers(convolution("Relu", inside=True, before=(2, 16, 4, 3)))[0]
    assert "cutlass.conv_silu_residual" in check_numbers(convolution("Silu", after=(2, 16, 4, 3)))[0]


def test_only_what_moves_is_turned() -> None:
    _, calls = check_numbers(convolution(kernel=(4, 8, 1, 1)))
    assert calls[:3] == ["turn", "conv", "turn"]  # a 1x1 filter lies the same either way

    _, calls = check_numbers(convolution(x=(2, 1, 3, 3), kernel=(4, 1, 3, 3)))
    assert set(calls) == {"conv"}
