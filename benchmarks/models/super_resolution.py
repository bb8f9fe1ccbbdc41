"""Super-resolution: residual blocks with spatial attention, pixel shuffle, and a bicubic skip."""

from __future__ import annotations

import onnx

from benchmarks.models.entry import Entry, images
from benchmarks.models.graph import GraphWriter

SIZE, SCALE, WIDTH, BLOCKS = 96, 4, 48, 6


def spatial_attention(g: GraphWriter, x: str) -> str:
    """Append a weighting of pixels by the mean and the maximum over their channels."""
    mean = g.op("ReduceMean", x, axes=[1], keepdims=1, channels=1)
    highest = g.op("ReduceMax", x, axes=[1], keepdims=1, channels=1)
    both = g.op("Concat", mean, highest, axis=1, channels=2)
    return g.op("Mul", x, g.op("Sigmoid", g.conv(both, 1, 7)))


def block(g: GraphWriter, x: str) -> str:
    """Append a depthwise-separable residual block with attention."""
    y = g.op("Relu", g.conv(x, WIDTH, 3, group=WIDTH))
    y = g.op("Relu", g.conv(y, WIDTH * 2))
    y = g.conv(y, WIDTH)
    return g.op("Add", x, spatial_attention(g, y))


def skeleton() -> onnx.ModelProto:
    """Build the super-resolution model: image [1, 3, 96, 96] -> [1, 3, 384, 384]."""
    g = GraphWriter("super_resolution")
    image = g.input("image", [1, 3, SIZE, SIZE])
    x = first = g.op("Relu", g.conv(image, WIDTH, 3))
    for _ in range(BLOCKS):
        x = block(g, x)
    x = g.conv(g.op("Add", x, first), 3 * SCALE * SCALE, 3)
    x = g.op("DepthToSpace", x, blocksize=SCALE, mode="CRD", channels=3)
    sizes = g.ints(1, 3, SIZE * SCALE, SIZE * SCALE)
    skip = g.op(
        "Resize",
        image,
        "",
        "",
        sizes,
        mode="cubic",
        cubic_coeff_a=-0.75,
        coordinate_transformation_mode="half_pixel",
    )
    return g.model(g.op("Add", x, skip), rename=["enlarged"])


ENTRIES = (
    Entry(
        name="super_resolution",
        about="4x super-resolution: spatial attention, pixel shuffle, bicubic skip",
        skeleton=skeleton,
        inputs=images("image", 1, 3, SIZE, SIZE),
    ),
)
