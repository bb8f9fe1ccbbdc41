"""Video models: a 3D-ResNet, and 3-D convolutions below a recurrent network."""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from benchmarks.models.entry import Entry, images
from benchmarks.models.graph import GraphWriter

FRAMES = 32  # Of the lip-reading clip.


def conv_bn_relu(g: GraphWriter, x: str, out: int, kernel: Sequence[int], stride: Sequence[int] = (1, 1, 1)) -> str:
    """Append convolution, BatchNormalization and Relu."""
    return g.op("Relu", g.batch_norm(g.conv(x, out, kernel, stride=stride, bias=False)))


def basic_block(g: GraphWriter, x: str, out: int, stride: int) -> str:
    """Append a residual block of two 3x3x3 convolutions."""
    strides = [stride] * 3
    y = conv_bn_relu(g, x, out, (3, 3, 3), strides)
    y = g.batch_norm(g.conv(y, out, (3, 3, 3), bias=False))
    if stride != 1 or g.channels(x) != out:
        x = g.batch_norm(g.conv(x, out, (1, 1, 1), stride=strides, bias=False))
    return g.op("Relu", g.op("Add", y, x))


def resnet3d() -> onnx.ModelProto:
    """Build 3D-ResNet-18: clip [1, 3, 8, 112, 112] -> logits [1, 400]."""
    g = GraphWriter("resnet3d_18")
    x = conv_bn_relu(g, g.input("clip", [1, 3, 8, 112, 112]), 64, (3, 7, 7), (1, 2, 2))
    for out, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        x = basic_block(g, x, out, stride)
        x = basic_block(g, x, out, 1)
    x = g.op("Flatten", g.op("GlobalAveragePool", x), axis=1)
    return g.model(
        g.op("Gemm", x, g.weight("gemm_weight", 400, 512), g.weight("gemm_bias", 400), transB=1), rename=["logits"]
    )


def conv3d_gru() -> onnx.ModelProto:
    """Build Conv3D + GRU for lip reading: clip [1, 1, 32, 48, 96] -> symbols [32, 1, 28].

    Three bidirectional GRU layers in the original form (the reset gate before the matrix product).
    """
    g = GraphWriter("conv3d_gru")
    x = g.input("clip", [1, 1, FRAMES, 48, 96])
    for out, kernel, stride in ((32, (3, 5, 5), (1, 2, 2)), (64, (3, 5, 5), (1, 1, 1)), (96, (3, 3, 3), (1, 1, 1))):
        x = g.op("Relu", g.conv(x, out, kernel, stride=stride))
        x = g.op("MaxPool", x, kernel_shape=[1, 2, 2], strides=[1, 2, 2])
    # [1, 96, 32, 3, 6] -> time first, features last.
    features, hidden = 96 * 3 * 6, 256
    x = g.op("Reshape", g.op("Transpose", x, perm=[2, 0, 1, 3, 4]), g.ints(FRAMES, 1, features))
    for _ in range(3):
        gates = [
            g.weight("gru_input", 2, 3 * hidden, features),
            g.weight("gru_recurrent", 2, 3 * hidden, hidden),
            g.weight("gru_bias", 2, 6 * hidden),
        ]
        y = g.ops("GRU", 2, x, *gates, hidden_size=hidden, direction="bidirectional", linear_before_reset=0)[0]
        x = g.op("Reshape", g.op("Transpose", y, perm=[0, 2, 1, 3]), g.ints(FRAMES, 1, 2 * hidden))
        features = 2 * hidden
    return g.model(g.op("LogSoftmax", g.linear(x, features, 28), axis=-1), rename=["symbols"])


ENTRIES = (
    Entry(
        name="resnet3d_18",
        about="3D-ResNet-18 on 8 frames of 112 x 112",
        skeleton=resnet3d,
        inputs=images("clip", 1, 3, 8, 112, 112),
        large=True,
    ),
    Entry(
        name="conv3d_gru",
        about="lip reading: 3-D convolutions, then three bidirectional GRU layers over 32 frames",
        skeleton=conv3d_gru,
        inputs=images("clip", 1, 1, FRAMES, 48, 96),
    ),
)
