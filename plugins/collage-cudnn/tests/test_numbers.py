"""Every form against ONNX's reference: windows, groups, layouts, epilogues, masks, norms and regions.

They are computed by an emulation that knows only the described graph and what cuDNN's documentation says of its nodes.
"""

from __future__ import annotations

from typing import Any

import pytest

from .cases import (
    BFLOAT16,
    FLOAT,
    FLOAT16,
    attention,
    batch_norm,
    block,
    convolution,
    instance_norm,
    layer_norm,
    normalised_image,
    product,
    rms_norm,
)
from .checking import TOLERANCES, check_numbers
from .machine import TF32

WINDOWS: dict[str, dict[str, Any]] = {
    "plain": {},
    "pads": {"pads": [1, 1, 1, 1]},
    "pads that differ": {"pads": [0, 1, 2, 1]},
    "strides and dilations": {"strides": [2, 1], "dilations": [1, 2], "pads": [1, 2, 1, 2]},
    "same, the odd one behind": {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
    "same, the odd one before": {"auto_pad": "SAME_LOWER", "strides": [2, 2]},
    "groups": {"kernel": (8, 2, 3, 3), "group": 4},
    "depthwise": {"kernel": (8, 1, 3, 3), "group": 8},
    "depthwise, two each": {"kernel": (16, 1, 3, 3), "group": 8},
    "one axis": {"x": (2, 8, 9), "kernel": (4, 8, 3), "strides": [2], "pads": [1, 0]},
    "three axes": {"x": (1, 4, 4, 5, 3), "kernel": (6, 4, 2, 3, 1), "pads": [0, 1, 0, 1, 0, 0]},
    "one by one": {"kernel": (4, 8, 1, 1)},
    "no space left": {"x": (2, 8, 3, 3)},
}
TRANSPOSED: dict[str, dict[str, Any]] = {
    "plain": {"kernel": (8, 6, 3, 3)},
    "strides and pads": {"kernel": (8, 6, 4, 4), "strides": [2, 2], "pads": [1, 1, 1, 1]},
    "output padding": {"kernel": (8, 6, 3, 3), "strides": [2, 3], "output_padding": [1, 2], "pads": [1, 0, 1, 0]},
    "groups": {"kernel": (8, 3, 3, 3), "group": 2, "dilations": [2, 1]},
    "one axis": {"x": (2, 8, 5), "kernel": (8, 4, 4), "strides": [2]},
}


@pytest.mark.parametrize("window", WINDOWS)
def test_every_window_is_right(window: str) -> None:
    labels, emulator = check_numbers(convolution("Relu", **WINDOWS[window]))

    assert sorted(labels) == ["cudnn.conv", "cudnn.conv_relu"]
    assert {operation.kind for graph, _ in emulator.graphs for operation in graph.operations} == {
        "conv_fprop",
        "add",
        "relu",
    }


@pytest.mark.parametrize("window", TRANSPOSED)
def test_a_transposed_convolution_is_the_gradient_of_its_data(window: str) -> None:
    labels, emulator = check_numbers(convolution(operator="ConvTranspose", bias="", **TRANSPOSED[window]))

    assert labels == ["cudnn.conv_transpose"]
    assert emulator.graphs[0][0].operations[0].kind == "conv_dgrad"


@pytest.mark.parametrize(
    ("activation", "label"),
    [
        ("Silu", "silu"),
        ("QuickGelu", "quick_gelu"),
        ("Gelu", "gelu"),
        ("GeluTanh", "gelu_tanh"),
        ("Relu6", "clip"),
        ("LeakyRelu", "leaky_relu"),
        ("Elu", "elu"),
        ("Sigmoid", "sigmoid"),
        ("Softplus", "softplus"),
        ("Tanh", "tanh"),
    ],
)
def test_every_activation_is_right_after_a_convolution(activation: str, label: str) -> None:
    labels, _ = check_numbers(convolution(activation, bias="added", kernel=(4, 8, 1, 1)), TF32)

    assert f"cudnn.conv_{label}" in labels


@pytest.mark.parametrize("bias", ["", "inside", "added"])
@pytest.mark.parametrize("add", ["Add", "Sum"])
def test_a_residual_is_added_before_the_activation(bias: str, add: str) -> None:
    model = convolution("Relu", bias=bias, residual=(2, 16, 4, 3), add=add)

    labels, emulator = check_numbers(model)

    assert labels.count("cudnn.conv_relu") == 1
    [whole, *_] = [graph for graph, _ in emulator.graphs if graph.operations[-1].kind == "relu"]
    # the order of cuDNN's compiled kernels, which also have a bias
    assert [list(operation.reads.values())[-1] for operation in whole.operations[1:3]] == ["residual", "bias"]


@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16])
def test_sixteen_bit_convolutions_are_right(dtype: Any) -> None:
    model = convolution("Relu", dtype=dtype, residual=(2, 16, 4, 3))

    assert check_numbers(model, tolerance=TOLERANCES[dtype.name])[0].count("cudnn.conv_relu") == 1


@pytest.mark.parametrize(
    "case",
    [
        {},
        {"turned": True, "bias": True},
        {"a": (2, 3, 16), "bias": True, "residual": (2, 3, 8)},
        {"a": (2, 3, 5, 16), "b": (2, 3, 16, 4)},
        {"a": (2, 3, 5, 16), "b": (2, 3, 16, 4), "turned": True},
        {"a": (5, 16), "b": (3, 16, 4)},
    ],
)
def test_products_are_right(case: dict[str, Any]) -> None:
    labels, _ = check_numbers(product("Gelu", **case), tolerance=TOLERANCES["FLOAT16"])

    assert "cudnn.matmul_gelu" in labels


def test_products_of_float32_are_for_tf32() -> None:
    assert "cudnn.matmul_silu" in check_numbers(product("Silu", bias=True, dtype=FLOAT), TF32)[0]


@pytest.mark.parametrize(
    "case",
    [
        {},
        {"mask": "added"},
        {"mask": "causal"},
        {"key_heads": 2, "mask": "causal"},
        {"keys": 9, "mask": "added"},
        {"turned": "heads"},
        {"turned": "before", "keys": 7},
    ],
)
def test_attention_is_right(case: dict[str, Any]) -> None:
    labels, emulator = check_numbers(attention(**case), tolerance=TOLERANCES["FLOAT16"])

    assert "cudnn.attention" in labels
    sdpa = next(graph.operations[0] for graph, _ in emulator.graphs if graph.operations[0].kind == "sdpa")
    assert ("bias" in sdpa.reads) == (case.get("mask") == "added")
    assert bool(sdpa.attributes.get("causal")) == (case.get("mask") == "causal")


@pytest.mark.parametrize("bias", [True, False])
def test_layer_norm_is_right(bias: bool) -> None:
    assert check_numbers(layer_norm(bias=bias))[0] == ["cudnn.layer_norm"]


def test_rms_norm_is_right() -> None:
    assert check_numbers(rms_norm())[0] == ["cudnn.rms_norm"]


@pytest.mark.parametrize("shape", [(2, 4, 5), (2, 4, 3, 5), (1, 4, 2, 3, 2)])
def test_norms_of_images_are_right(shape: tuple[int, ...]) -> None:
    assert check_numbers(instance_norm(*shape))[0] == ["cudnn.instance_norm"]
    assert sorted(check_numbers(batch_norm(*shape, activation="Relu"))[0]) == [
        "cudnn.batch_norm",
        "cudnn.batch_norm_relu",
    ]


@pytest.mark.parametrize("dtype", [FLOAT, FLOAT16])
def test_a_region_converts_at_its_border_alone(dtype: Any) -> None:
    """Four convolutions of a bottleneck: one image goes in, one comes out, whatever lies between."""
    labels, emulator = check_numbers(block(dtype), tolerance=TOLERANCES[dtype.name], regions=True)

    assert "" in labels  # regions have no label
    executed = "".join({"execute": "x", "convert": "c"}.get(call, " ") for call in emulator.calls)
    four_calls = 4
    assert "cxxxxc" * four_calls in executed
    assert "xxxx" * four_calls in executed  # channels-first, which nobody has to convert


def test_a_value_that_two_groups_see_differently_is_right_for_both() -> None:
    labels, _ = check_numbers(normalised_image(), regions=True)

    assert sorted(set(labels)) == ["", "cudnn.conv", "cudnn.layer_norm"]
