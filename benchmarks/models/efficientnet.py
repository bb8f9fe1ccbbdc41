"""EfficientNet-B0 with a pooling that OpenVINO refuses: its kernel exceeds its input, with ceil_mode.

The head pools 7 x 7 features with an 8 x 8 kernel, as models do whose pooling was sized for a larger image and which
were exported for a smaller one.
"""

from __future__ import annotations

import onnx

from benchmarks.models.entry import Entry, images
from benchmarks.models.graph import GraphWriter

# Expansion, kernel, stride, channels, repeats: table 1 of the EfficientNet paper (arXiv 1905.11946).
STAGES = (
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)


def swish(g: GraphWriter, x: str) -> str:
    """Append x * sigmoid(x)."""
    return g.op("Mul", x, g.op("Sigmoid", x))


def squeeze_excite(g: GraphWriter, x: str, squeezed: int) -> str:
    """Append a weighting of the channels by what they are on average."""
    channels = g.channels(x)
    y = swish(g, g.conv(g.op("GlobalAveragePool", x), squeezed))
    return g.op("Mul", x, g.op("Sigmoid", g.conv(y, channels)))


def mb_conv(g: GraphWriter, x: str, expansion: int, kernel: int, stride: int, out: int) -> str:
    """Append an inverted bottleneck with squeeze-and-excitation."""
    inside = g.channels(x)
    y = x
    if expansion != 1:
        y = swish(g, g.batch_norm(g.conv(y, inside * expansion, bias=False)))
    wide = g.channels(y)
    y = swish(g, g.batch_norm(g.conv(y, wide, kernel, stride=stride, group=wide, bias=False)))
    y = squeeze_excite(g, y, max(1, inside // 4))
    y = g.batch_norm(g.conv(y, out, bias=False))
    return g.op("Add", x, y) if stride == 1 and inside == out else y


def skeleton() -> onnx.ModelProto:
    """Build EfficientNet-B0: image [1, 3, 224, 224] -> logits [1, 1000]."""
    g = GraphWriter("efficientnet_b0")
    x = swish(g, g.batch_norm(g.conv(g.input("image", [1, 3, 224, 224]), 32, 3, stride=2, bias=False)))
    for expansion, kernel, stride, out, repeats in STAGES:
        for repeat in range(repeats):
            x = mb_conv(g, x, expansion, kernel, stride if repeat == 0 else 1, out)
    x = swish(g, g.batch_norm(g.conv(x, 1280, bias=False)))
    x = g.op("AveragePool", x, kernel_shape=[8, 8], strides=[8, 8], ceil_mode=1)
    x = g.op("Flatten", x, axis=1)
    return g.model(
        g.op("Gemm", x, g.weight("gemm_weight", 1000, 1280), g.weight("gemm_bias", 1000), transB=1),
        rename=["logits"],
    )


ENTRIES = (
    Entry(
        name="efficientnet_b0",
        about="EfficientNet-B0 with an AveragePool whose kernel exceeds its input (OpenVINO refuses it)",
        skeleton=skeleton,
        inputs=images("image", 1, 3, 224, 224),
        rejected_by={"openvino": "AveragePool with ceil_mode and a kernel larger than its input"},
    ),
)
