"""Models the tests are about."""

from __future__ import annotations

from typing import Any

import onnx_ir

from collage_testing import GraphBuilder
from collage_testing.kit.gpu_plugins import activated
from collage_testing.kit.gpu_plugins import scaled_weight as weight

FLOAT, FLOAT16, BFLOAT16 = onnx_ir.DataType.FLOAT, onnx_ir.DataType.FLOAT16, onnx_ir.DataType.BFLOAT16

ACTIVATIONS = {
    "gelu": "Gelu",
    "gelu_tanh": "GeluTanh",
    "silu": "Silu",
    "quick_gelu": "QuickGelu",
    "clip": "HardTanh",
    "relu": "Relu",
    "leaky_relu": "LeakyRelu",
    "elu": "GentleElu",
    "sigmoid": "Sigmoid",
    "softplus": "Softplus",
    "tanh": "Tanh",
}
"""How the models here spell each activation of the plugin."""


def finished(
    g: GraphBuilder, value: onnx_ir.Value, activation: str, dtype: onnx_ir.DataType, **parts: Any
) -> onnx_ir.Model:
    """activation(value * scale + bias + before) + after; parts are shapes."""
    if scale := parts.get("scale"):
        value = g.op("Mul", value, weight(g, "scale", *scale, dtype=dtype))
    if bias := parts.get("bias"):
        value = g.op("Add", weight(g, "bias", *bias, dtype=dtype), value)
    if before := parts.get("before"):
        value = g.op("Add", value, g.op("Neg", g.input("r", *before, dtype=dtype)))
    value = activated(g, activation, value)
    if after := parts.get("after"):
        value = g.op("Add", g.op("Neg", g.input("s", *after, dtype=dtype)), value)
    return g.model(value)


def product(
    activation: str = "",
    *,
    a: tuple[int, ...] = (3, 16),
    b: tuple[int, ...] = (16, 8),
    turned: bool = False,
    constant: bool = False,
    dtype: onnx_ir.DataType = FLOAT,
    **parts: Any,
) -> onnx_ir.Model:
    """A product with what follows; `turned`: b is given with its last axes exchanged."""
    g = GraphBuilder("product")
    x = g.input("x", *a, dtype=dtype)
    shape = (*b[:-2], b[-1], b[-2]) if turned else b
    z = weight(g, "w", *shape, dtype=dtype) if constant else g.input("z", *shape, dtype=dtype)
    if turned:
        rank = len(b)
        z = g.op("Transpose", z, perm=[*range(rank - 2), rank - 1, rank - 2])
    return finished(g, g.op("MatMul", x, z), activation, dtype, **parts)


def convolution(
    activation: str = "",
    *,
    x: tuple[int, ...] = (2, 8, 6, 5),
    kernel: tuple[int, ...] = (16, 8, 3, 3),
    inside: bool = False,
    computed: bool = False,
    dtype: onnx_ir.DataType = FLOAT,
    attributes: dict[str, Any] | None = None,
    **parts: Any,
) -> onnx_ir.Model:
    """A convolution with what follows; `inside`: it has a bias of its own, `computed`: its filter is no weight."""
    g = GraphBuilder("convolution")
    filters = g.op("Neg", g.input("w", *kernel, dtype=dtype)) if computed else weight(g, "w", *kernel, dtype=dtype)
    operands = [g.input("x", *x, dtype=dtype), filters]
    if inside:
        operands.append(weight(g, "own", kernel[0], dtype=dtype))
    return finished(g, g.op("Conv", *operands, **(attributes or {})), activation, dtype, **parts)
