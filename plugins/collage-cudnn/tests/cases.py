"""Models the tests are about."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir

from collage_testing import GraphBuilder
from collage_testing.kit.gpu_plugins import activated
from collage_testing.kit.gpu_plugins import scaled_weight as weight

FLOAT, FLOAT16, BFLOAT16 = onnx_ir.DataType.FLOAT, onnx_ir.DataType.FLOAT16, onnx_ir.DataType.BFLOAT16


def convolution(
    activation: str = "",
    *,
    operator: str = "Conv",
    x: tuple[int, ...] = (2, 8, 6, 5),
    kernel: tuple[int, ...] = (16, 8, 3, 3),
    bias: str = "inside",
    residual: tuple[int, ...] | None = None,
    add: str = "Add",
    dtype: onnx_ir.DataType = FLOAT,
    **attributes: Any,
) -> onnx_ir.Model:
    """activation(conv + bias + residual).

    `bias` is "inside", "added" or empty; `residual` is its shape, `add` the operator that adds it.
    """
    g = GraphBuilder("convolution")
    channels = kernel[0] if operator == "Conv" else kernel[1] * attributes.get("group", 1)
    operands = [g.input("x", *x, dtype=dtype), weight(g, "w", *kernel, dtype=dtype)]
    if bias == "inside":
        operands.append(weight(g, "bias", channels, dtype=dtype))
    value = g.op(operator, *operands, **attributes)
    if bias == "added":
        value = g.op("Add", value, weight(g, "bias", channels, *(1 for _ in x[2:]), dtype=dtype))
    if residual is not None:
        value = g.op(add, g.op("Neg", g.input("r", *residual, dtype=dtype)), value)
    return g.model(activated(g, activation, value))


def block(dtype: onnx_ir.DataType = FLOAT) -> onnx_ir.Model:
    """A bottleneck as of ResNet-50: three convolutions, the last added to one that widens what came in."""
    g = GraphBuilder("block")
    x = g.input("x", 1, 8, 5, 6, dtype=dtype)

    def conv(name: str, value: onnx_ir.Value, *shape: int, pads: int = 0) -> onnx_ir.Value:
        bias = weight(g, f"{name}_bias", shape[0], dtype=dtype)
        return g.op("Conv", value, weight(g, name, *shape, dtype=dtype), bias, pads=[pads] * 4)

    narrow = g.op("Relu", conv("first", x, 4, 8, 1, 1))
    middle = g.op("Relu", conv("second", narrow, 4, 4, 3, 3, pads=1))
    wide = conv("third", middle, 16, 4, 1, 1)
    return g.model(g.op("Relu", g.op("Sum", wide, conv("skip", x, 16, 8, 1, 1))))


def normalised_image(dtype: onnx_ir.DataType = FLOAT) -> onnx_ir.Model:
    """A convolution over one axis whose rows are normalised: two groups that see the value between them differently."""
    g = GraphBuilder("normalised_image")
    kernel, bias = weight(g, "w", 6, 4, 3, dtype=dtype), weight(g, "b", 6, dtype=dtype)
    value = g.op("Conv", g.input("x", 2, 4, 7, dtype=dtype), kernel, bias)
    vectors = [weight(g, name, 5, dtype=dtype) for name in ("scale", "shift")]
    return g.model(g.op("LayerNormalization", value, *vectors, axis=-1), g.op("Conv", value, weight(g, "v", 3, 6, 1)))


def attention(
    mask: str = "",
    *,
    dtype: onnx_ir.DataType = FLOAT16,
    heads: int = 4,
    key_heads: int = 4,
    queries: int = 6,
    keys: int = 6,
    size: int = 8,
    turned: str = "last",
) -> onnx_ir.Model:
    """softmax(Q K^T / sqrt(size) + mask) V, written out.

    `mask` is "added", "causal", "chosen" or empty; `turned` says whether K comes as [.., keys, size] and its last axes
    are exchanged, as [.., keys, heads, size], or as [.., size, keys].
    """
    g = GraphBuilder("attention")
    q = g.input("q", 2, heads, queries, size, dtype=dtype)
    v = g.input("v", 2, key_heads, keys, size, dtype=dtype)
    if turned == "last":
        k = g.op("Transpose", _copied(g, g.input("k", 2, key_heads, keys, size, dtype=dtype), heads), perm=[0, 1, 3, 2])
    elif turned == "heads":
        k = g.op("Transpose", g.input("k", 2, keys, heads, size, dtype=dtype), perm=[0, 2, 3, 1])
    else:
        k = g.input("k", 2, heads, size, keys, dtype=dtype)
    scale = g.constant("scale", np.asarray(1 / np.sqrt(size), dtype.numpy()))
    scores = g.op("Mul", g.op("MatMul", q, k), scale)
    if mask == "added":
        scores = g.op("Add", scores, g.input("mask", 2, 1, 1, keys, dtype=dtype))
    if mask == "causal":
        hidden = np.where(np.tri(queries, keys, dtype=bool), 0, -6e4).astype(dtype.numpy())
        scores = g.op("Add", scores, g.constant("diagonal", hidden))
    if mask == "chosen":
        least = g.constant("least", np.asarray(-6e4, dtype.numpy()))
        scores = g.op("Where", g.input("kept", 2, 1, 1, keys, dtype=onnx_ir.DataType.BOOL), scores, least)
    return g.model(g.op("MatMul", g.op("Softmax", scores, axis=-1), _copied(g, v, heads)))


def _copied(g: GraphBuilder, value: onnx_ir.Value, heads: int) -> onnx_ir.Value:
    """Keys or values of fewer heads, copied for the groups of heads that share them."""
    assert value.shape is not None
    batch, own, keys, size = (int(extent) for extent in value.shape.numpy())
    if own == heads:
        return value
    apart = g.op("Unsqueeze", value, g.ints(2))
    copies = g.op("Expand", apart, g.ints(batch, own, heads // own, keys, size))
    return g.op("Reshape", copies, g.ints(batch, heads, keys, size))


def layer_norm(dtype: onnx_ir.DataType = FLOAT, *, bias: bool = True) -> onnx_ir.Model:
    """The operator, over the last axis."""
    g = GraphBuilder("layer_norm")
    vectors = [weight(g, "scale", 8, dtype=dtype), *([weight(g, "bias", 8, dtype=dtype)] if bias else [])]
    return g.model(g.op("LayerNormalization", g.input("x", 2, 3, 8, dtype=dtype), *vectors, axis=-1, epsilon=1e-3))


def rms_norm(dtype: onnx_ir.DataType = FLOAT) -> onnx_ir.Model:
    """Written out."""
    g = GraphBuilder("rms_norm")
    x = g.input("x", 2, 3, 8, dtype=dtype)
    mean = g.op("ReduceMean", g.op("Mul", x, x), g.ints(-1), keepdims=1)
    root = g.op("Sqrt", g.op("Add", mean, g.constant("epsilon", np.asarray(1e-5, dtype.numpy()))))
    return g.model(g.op("Mul", weight(g, "scale", 8, dtype=dtype), g.op("Div", x, root)))


def instance_norm(*shape: int, dtype: onnx_ir.DataType = FLOAT) -> onnx_ir.Model:
    g = GraphBuilder("instance_norm")
    vectors = [weight(g, name, shape[1], dtype=dtype) for name in ("scale", "bias")]
    return g.model(g.op("InstanceNormalization", g.input("x", *shape, dtype=dtype), *vectors, epsilon=1e-3))


def batch_norm(*shape: int, activation: str = "", dtype: onnx_ir.DataType = FLOAT) -> onnx_ir.Model:
    g = GraphBuilder("batch_norm")
    variance = g.constant("variance", np.linspace(0.5, 2.0, shape[1]).astype(dtype.numpy()))
    vectors = [weight(g, name, shape[1], dtype=dtype) for name in ("scale", "bias", "mean")]
    value = g.op("BatchNormalization", g.input("x", *shape, dtype=dtype), *vectors, variance, epsilon=1e-3)
    return g.model(activated(g, activation, value))


def product(
    activation: str = "",
    *,
    a: tuple[int, ...] = (3, 16),
    b: tuple[int, ...] = (16, 8),
    turned: bool = False,
    bias: bool = False,
    residual: tuple[int, ...] | None = None,
    dtype: onnx_ir.DataType = FLOAT16,
) -> onnx_ir.Model:
    """activation(a b + bias + residual); `turned`: b is given with its last axes exchanged."""
    g = GraphBuilder("product")
    x = g.input("x", *a, dtype=dtype)
    z = g.input("z", *((*b[:-2], b[-1], b[-2]) if turned else b), dtype=dtype)
    if turned:
        rank = len(b)
        z = g.op("Transpose", z, perm=[*range(rank - 2), rank - 1, rank - 2])
    value = g.op("MatMul", x, z)
    if bias:
        value = g.op("Add", value, weight(g, "bias", b[-1], dtype=dtype))
    if residual is not None:
        value = g.op("Add", value, g.op("Neg", g.input("r", *residual, dtype=dtype)))
    return g.model(activated(g, activation, value))
