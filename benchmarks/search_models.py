"""Models with the structures a search has to handle; tensors are small, because nothing runs."""

from __future__ import annotations

import numpy as np
import onnx_ir

from collage_testing import GraphBuilder

HIDDEN, HEADS, TOKENS = 16, 2, 4
GROWTH = 2
DENSE_BLOCKS = (6, 12, 24, 16)
"""Layers of each block of DenseNet-121 (Huang et al. 2017, table 1)."""


def densenet() -> onnx_ir.Model:
    """Build DenseNet-121 with the 910 nodes of the file in the ONNX model zoo.

    That file was converted from Caffe, where a separate scale follows each normalisation: BatchNormalization, Mul
    and Add, with an Unsqueeze for each of the two vectors.
    """
    g = GraphBuilder("densenet121")
    x = _scaled(g, _conv(g, g.input("x", 1, 3, 64, 64), 3, GROWTH * 2, 7, 2), GROWTH * 2)
    x = g.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels = GROWTH * 2
    for block, layers in enumerate(DENSE_BLOCKS):
        for _ in range(layers):
            narrow = _conv(g, _scaled(g, x, channels), channels, GROWTH * 4, 1)
            new = _conv(g, _scaled(g, narrow, GROWTH * 4), GROWTH * 4, GROWTH, 3)
            x = g.op("Concat", x, new, axis=1)
            channels += GROWTH
        x = _scaled(g, x, channels)
        if block < len(DENSE_BLOCKS) - 1:
            x = _conv(g, x, channels, channels // 2, 1)
            channels //= 2
            x = g.op("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = g.op("GlobalAveragePool", x)
    return g.model(_conv(g, x, channels, 10, 1))


def _conv(g: GraphBuilder, x: onnx_ir.Value, inputs: int, outputs: int, kernel: int, stride: int = 1) -> onnx_ir.Value:
    weight = g.weight(f"w{g.count}", outputs, inputs, kernel, kernel)
    return g.op("Conv", x, weight, kernel_shape=[kernel] * 2, pads=[kernel // 2] * 4, strides=[stride] * 2)


def _scaled(g: GraphBuilder, x: onnx_ir.Value, channels: int) -> onnx_ir.Value:
    parameters = [g.weight(f"{role}{g.count}", channels) for role in ("scale", "shift", "mean", "var")]
    x = g.op("BatchNormalization", x, *parameters)
    for op_type in ("Mul", "Add"):
        x = g.op(op_type, x, g.op("Unsqueeze", g.weight(f"{op_type}{g.count}", channels), g.ints(1, 2)))
    return g.op("Relu", x)


def transformer(layers: int) -> onnx_ir.Model:
    """Build layers of BERT as the TorchScript exporter writes them, GELU in five operators.

    A layer has 34 nodes, 30 of which need a kernel.

    Args:
        layers: Number of layers.
    """
    g = GraphBuilder(f"transformer_{layers}")
    x, mask = g.input("x", 1, TOKENS, HIDDEN), g.input("mask", 1, 1, 1, TOKENS)
    for _ in range(layers):
        x = _normed(g, g.op("Add", _attention(g, x, mask), x))
        wide = _dense(g, x, HIDDEN, 4 * HIDDEN)
        gelu = g.op("Add", g.op("Erf", g.op("Div", wide, _scalar(g, 1.4142135))), _scalar(g, 1.0))
        gelu = g.op("Mul", g.op("Mul", wide, gelu), _scalar(g, 0.5))
        x = _normed(g, g.op("Add", _dense(g, gelu, 4 * HIDDEN, HIDDEN), x))
    return g.model(x)


def _attention(g: GraphBuilder, x: onnx_ir.Value, mask: onnx_ir.Value) -> onnx_ir.Value:
    def heads(order: list[int]) -> onnx_ir.Value:
        split = g.op("Reshape", _dense(g, x, HIDDEN, HIDDEN), g.ints(1, TOKENS, HEADS, HIDDEN // HEADS))
        return g.op("Transpose", split, perm=order)

    query, key, value = heads([0, 2, 1, 3]), heads([0, 2, 3, 1]), heads([0, 2, 1, 3])
    scores = g.op("Add", g.op("Div", g.op("MatMul", query, key), _scalar(g, 2.828)), mask)
    mixed = g.op("Transpose", g.op("MatMul", g.op("Softmax", scores, axis=-1), value), perm=[0, 2, 1, 3])
    return _dense(g, g.op("Reshape", mixed, g.ints(1, TOKENS, HIDDEN)), HIDDEN, HIDDEN)


def _dense(g: GraphBuilder, x: onnx_ir.Value, inputs: int, outputs: int) -> onnx_ir.Value:
    product = g.op("MatMul", x, g.weight(f"w{g.count}", inputs, outputs))
    return g.op("Add", product, g.weight(f"b{g.count}", outputs))


def _normed(g: GraphBuilder, x: onnx_ir.Value) -> onnx_ir.Value:
    weights = g.weight(f"gamma{g.count}", HIDDEN), g.weight(f"beta{g.count}", HIDDEN)
    return g.op("LayerNormalization", x, *weights, axis=-1)


def _scalar(g: GraphBuilder, value: float) -> onnx_ir.Value:
    return g.constant(f"scalar{g.count}", np.float32(value))
