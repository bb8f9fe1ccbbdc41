"""Small models to reason about, one for each case that partitioning has to get right."""

from __future__ import annotations

import onnx_ir

from collage_testing.graphs import GraphBuilder


def single_matmul(m: int, n: int, k: int) -> onnx_ir.Model:
    """Build `x [m, k]` times a weight `[k, n]`: the node `matmul_0`."""
    g = GraphBuilder("single_matmul")
    return g.model(g.op("MatMul", g.input("x", m, k), g.weight("w", k, n)))


def chain(*operators: str, shape: tuple[int, ...] = (4, 4)) -> onnx_ir.Model:
    """Build a chain of unary operators, each on the result of the previous one: `relu_0`, `exp_0`, `relu_1`."""
    g = GraphBuilder("chain")
    value = g.input("x", *shape)
    for operator in operators:
        value = g.op(operator, value)
    return g.model(value)


def dense(m: int = 4, n: int = 8, k: int = 16, *, activation: str = "") -> onnx_ir.Model:
    """Build `matmul_0` and `add_0`, followed by the activation if one is named."""
    g = GraphBuilder("dense")
    value = g.op("Add", g.op("MatMul", g.input("x", m, k), g.weight("w", k, n)), g.weight("b", n))
    return g.model(g.op(activation, value) if activation else value)


def diamond(shape: tuple[int, ...] = (4, 4)) -> onnx_ir.Model:
    """Build a diamond: `relu_0` feeds `exp_0` and `tanh_0`, and `add_0` joins them.

    A value can flow out of a group of its nodes and back in.
    """
    g = GraphBuilder("diamond")
    top = g.op("Relu", g.input("x", *shape))
    return g.model(g.op("Add", g.op("Exp", top), g.op("Tanh", top)))


def crossed(shape: tuple[int, ...] = (4, 4)) -> onnx_ir.Model:
    """Build a model in which `a1` feeds `b1` and `b2` feeds `a2`.

    The groups `{a1, a2}` and `{b1, b2}` depend on each other.
    """
    g = GraphBuilder("crossed")
    a1 = g.op("Relu", g.input("x", *shape), name="a1")
    b2 = g.op("Exp", g.input("z", *shape), name="b2")
    return g.model(g.op("Tanh", b2, name="a2"), g.op("Neg", a1, name="b1"))


def mnist() -> onnx_ir.Model:
    """Build the MNIST classifier of the ONNX model zoo, unfused: image `[1, 1, 28, 28]` to logits `[1, 10]`.

    `pad_0 conv_0 add_0 relu_0 maxpool_0 pad_1 conv_1 add_1 relu_1 maxpool_1 reshape_0 matmul_0 add_2`
    """
    g = GraphBuilder("mnist")
    value = g.input("x", 1, 1, 28, 28)
    channels = 1
    for number, (out, pool) in enumerate(((8, 2), (16, 3))):
        value = g.op("Pad", value, g.ints(0, 0, 2, 2, 0, 0, 2, 2), mode="constant")
        value = g.op("Conv", value, g.weight(f"w{number}", out, channels, 5, 5), kernel_shape=[5, 5])
        value = g.op("Relu", g.op("Add", value, g.weight(f"b{number}", out, 1, 1)))
        value = g.op("MaxPool", value, kernel_shape=[pool, pool], strides=[pool, pool])
        channels = out
    value = g.op("Reshape", value, g.ints(1, 256))
    return g.model(g.op("Add", g.op("MatMul", value, g.weight("w2", 256, 10)), g.weight("b2", 1, 10)))
