"""Models the tests are about."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir

from collage_testing import GraphBuilder

FLOAT, FLOAT16, BFLOAT16 = onnx_ir.DataType.FLOAT, onnx_ir.DataType.FLOAT16, onnx_ir.DataType.BFLOAT16

ACTIVATIONS = {
    "gelu": "Gelu",
    "gelu_tanh": "GeluTanh",
    "silu": "Silu",
    "quick_gelu": "QuickGelu",
    "clip": "HardTanh",
    "relu": "Relu",
    "leaky_relu": "LeakyRelu",
    "elu": "Elu",
    "sigmoid": "Sigmoid",
    "softplus": "Softplus",
    "tanh": "Tanh",
}
"""How the models here spell each activation of the plugin."""


def weight(g: GraphBuilder, name: str, *shape: int, dtype: onnx_ir.DataType = FLOAT) -> onnx_ir.Value:
    """A weight of any of the types, whose products keep the scale of what they multiply."""
    random = np.random.default_rng(len(name) + sum(shape))
    array = random.standard_normal(shape) / np.sqrt(max(1, int(np.prod(shape[1:]))))
    return g.constant(name, array.astype(dtype.numpy()))


def activated(g: GraphBuilder, activation: str, x: onnx_ir.Value) -> onnx_ir.Value:
    """An activation by name, as models write it."""
    dtype = x.dtype.numpy() if x.dtype else np.float32

    def number(name: str, value: float) -> onnx_ir.Value:
        return g.constant(f"{name}_{g.count}", np.asarray(value, dtype))

    match activation:
        case "":
            return x
        case "Silu":
            return g.op("Mul", x, g.op("Sigmoid", x))
        case "QuickGelu":
            return g.op("Mul", x, g.op("Sigmoid", g.op("Mul", x, number("factor", 1.702))))
        case "HardTanh":
            return g.op("Clip", x, number("least", -0.5), number("most", 0.75))
        case "GeluTanh":
            return g.op("Gelu", x, approximate="tanh")
        case "LeakyRelu":
            return g.op("LeakyRelu", x, alpha=0.2)
        case "Elu":
            return g.op("Elu", x, alpha=0.7)
    return g.op(activation, x)


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
