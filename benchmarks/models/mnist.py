"""The MNIST classifier of the ONNX model zoo: the smallest model in which fusion has an effect."""

from __future__ import annotations

import onnx

from benchmarks.models.entry import Entry, images
from benchmarks.models.graph import GraphWriter


def skeleton() -> onnx.ModelProto:
    """Build MNIST: image [1, 1, 28, 28] -> logits [1, 10]."""
    g = GraphWriter("mnist")
    x = g.input("image", [1, 1, 28, 28])
    for out, pool in ((8, 2), (16, 3)):
        x = g.op("Pad", x, g.ints(0, 0, 2, 2, 0, 0, 2, 2), mode="constant")
        x = g.conv(x, out, 5, bias=False, pad=False)
        x = g.op("Relu", g.op("Add", x, g.weight("add_bias", out, 1, 1)))
        x = g.op("MaxPool", x, kernel_shape=[pool, pool], strides=[pool, pool])
    x = g.op("Reshape", x, g.ints(1, 256))
    return g.model(g.linear(x, 256, 10), rename=["logits"])


ENTRIES = (
    Entry(
        name="mnist",
        about="MNIST: Pad-Conv-Add-Relu-MaxPool twice, Reshape, MatMul, Add",
        skeleton=skeleton,
        inputs=images("image", 1, 1, 28, 28),
    ),
)
