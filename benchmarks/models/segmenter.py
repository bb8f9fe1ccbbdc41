"""A 150-class segmenter as deployed on phones: the output is the class map, not the logits.

Inverted residuals with hard-swish at output stride 16 (the last stage dilated; MobileNetV3-Small), a head
with a low-level skip, bilinear upsampling of the 150-channel logits to 512 x 512, ArgMax over channels. The
upsampled logits (157 MB) dominate: one runtime is slow at the ArgMax, the other at the Resize.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import onnx

from benchmarks.models.entry import Entry, images
from benchmarks.models.graph import GraphWriter

CLASSES = 150
SIZE = 512


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One inverted residual: expand, depthwise convolution, project."""

    kernel: int
    expanded: int
    out: int
    stride: int = 1
    dilation: int = 1


BLOCKS = (
    Block(kernel=3, expanded=16, out=16, stride=2),
    Block(kernel=3, expanded=72, out=24, stride=2),
    Block(kernel=3, expanded=88, out=24),
    Block(kernel=5, expanded=96, out=40, stride=2),
    Block(kernel=5, expanded=240, out=40),
    Block(kernel=5, expanded=240, out=40),
    Block(kernel=5, expanded=120, out=48),
    Block(kernel=5, expanded=144, out=48),
    Block(kernel=5, expanded=288, out=96, dilation=2),
    Block(kernel=5, expanded=576, out=96, dilation=2),
    Block(kernel=5, expanded=576, out=96, dilation=2),
)
"""MobileNetV3-Small (Howard et al. 2019, table 2) at output stride 16, without squeeze-and-excitation."""
LOW_LEVEL = 3  # Blocks before the skip is taken, at stride 8.


def inverted_residual(g: GraphWriter, x: str, block: Block) -> str:
    """Append one block; its input is added where the shapes allow it."""
    y = g.op("HardSwish", g.conv(x, block.expanded))
    y = g.conv(
        y,
        block.expanded,
        block.kernel,
        stride=block.stride,
        dilation=block.dilation,
        group=block.expanded,
    )
    y = g.conv(g.op("HardSwish", y), block.out)
    return g.op("Add", x, y) if block.stride == 1 and g.channels(x) == block.out else y


def resize(g: GraphWriter, x: str, size: int, scale: int = 0) -> str:
    """Append bilinear upsampling of an image to `size` x `size` pixels.

    Args:
        g: Receives the operator.
        x: The image.
        size: Height and width of the result.
        scale: Times as many pixels each way, which holds for any number of images; 0 to give the sizes of one.
    """
    scales = g.constant(np.array([1, 1, scale, scale], np.float32), "scales") if scale else ""
    sizes = "" if scale else g.ints(1, g.channels(x), size, size)
    return g.op("Resize", x, "", scales, sizes, mode="linear", coordinate_transformation_mode="pytorch_half_pixel")


def segmenter(name: str, size: int, batch: int | str) -> onnx.ModelProto:
    """Build a segmenter: image [batch, 3, size, size] -> classes [batch, size, size] (int64).

    Args:
        name: Name of the graph.
        size: Height and width of an image.
        batch: Number of images, or the name of a dimension for any number.
    """
    g = GraphWriter(name)
    x = g.op("HardSwish", g.conv(g.input("image", [batch, 3, size, size]), 16, 3, stride=2))
    low = x
    for index, block in enumerate(BLOCKS):
        if index == LOW_LEVEL:
            low = x
        x = inverted_residual(g, x, block)
    twice, eightfold = (0, 0) if batch == 1 else (2, 8)
    x = resize(g, g.op("Relu", g.conv(x, 128)), size // 8, twice)
    logits = g.op("Add", g.conv(x, CLASSES), g.conv(low, CLASSES))
    classes = g.op("ArgMax", resize(g, logits, size, eightfold), axis=1, keepdims=0)
    return g.model(classes, rename=["classes"])


ENTRIES = (
    Entry(
        name="segmenter",
        about="150-class segmenter: bilinear upsampling to 512 x 512 and ArgMax in the graph",
        skeleton=functools.partial(segmenter, "segmenter", SIZE, 1),
        inputs=images("image", 1, 3, SIZE, SIZE),
    ),
)
