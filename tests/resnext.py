"""ResNeXt-50 as a model of ONNX, small enough for tests."""

from __future__ import annotations

import onnx_ir

from collage_testing import GraphBuilder

DEPTHS = (3, 4, 6, 3)
"""Blocks of each stage, of a ResNet-50, too (He et al., 2016, table 1)."""


def resnext(*, narrower: int = 16, groups: int = 8) -> onnx_ir.Model:
    """ResNeXt-50 (Xie et al., 2017), `32 x 4d`, with a fraction of its channels: the graph is that of the paper."""
    g = GraphBuilder("resnext")

    def conv(value: onnx_ir.Value, channels: int, size: int, *, stride: int = 1, group: int = 1) -> onnx_ir.Value:
        assert value.shape is not None
        _, given, height, _ = value.shape.numpy()
        name = f"weight_{g.count}"
        operands = (g.weight(name, channels, given // group, size, size), g.weight(f"{name}_bias", channels))
        made = g.op("Conv", value, *operands, pads=[size // 2] * 4, strides=[stride] * 2, group=group)
        rows = (height + 2 * (size // 2) - size) // stride + 1
        made.dtype, made.shape = onnx_ir.DataType.FLOAT, onnx_ir.Shape([1, channels, rows, rows])
        return made

    def relu(value: onnx_ir.Value) -> onnx_ir.Value:
        made = g.op("Relu", value)
        made.dtype, made.shape = onnx_ir.DataType.FLOAT, value.shape
        return made

    value = relu(conv(g.input("x", 1, 3, 64, 64), 64 // narrower * 4, 7, stride=2))
    for stage, depth in enumerate(DEPTHS):
        inner, outer = (128 << stage) // narrower, (256 << stage) // narrower
        for number in range(depth):
            stride = 2 if stage and not number else 1
            wide = relu(conv(relu(conv(value, inner, 1)), inner, 3, stride=stride, group=groups))
            wide = conv(wide, outer, 1)
            skip = value if number else conv(value, outer, 1, stride=stride)
            joined = g.op("Add", wide, skip)
            joined.dtype, joined.shape = onnx_ir.DataType.FLOAT, wide.shape
            value = relu(joined)
    return g.model(value)
