"""Models for toolchains on devices."""

from __future__ import annotations

import onnx_ir

from collage_testing import GraphBuilder


def layers() -> onnx_ir.Model:
    """Two dense layers with a Softmax between them: a stretch, an operator, another stretch."""
    g = GraphBuilder("layers")
    hidden = g.op("Relu", g.op("MatMul", g.input("x", 8, 16), g.weight("v", 16, 16)))
    product = g.op("MatMul", g.op("Softmax", hidden), g.weight("w", 16, 16))
    return g.model(g.op("Add", product, g.weight("b", 16)))


def convolved() -> onnx_ir.Model:
    """Something for each toolchain of NVIDIA's GPUs: a convolution, two products, and what is around them."""
    g = GraphBuilder("convolved")
    image = g.op("Conv", g.input("x", 1, 8, 4, 4), g.weight("k", 8, 8, 3, 3), pads=[1, 1, 1, 1])
    product = g.op("MatMul", g.op("Relu", image), g.weight("w", 4, 8))
    product = g.op("MatMul", g.op("Softmax", product), g.weight("v", 8, 8))
    return g.model(g.op("Add", product, g.weight("b", 8)))


def one_layer() -> onnx_ir.Model:
    """A product and a Softmax."""
    g = GraphBuilder("layer")
    return g.model(g.op("Softmax", g.op("MatMul", g.input("x", 8, 16), g.weight("w", 16, 16))))
