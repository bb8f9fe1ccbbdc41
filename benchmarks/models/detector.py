"""Detectors that end in NonMaxSuppression: SSD heads, or one box per cell for any image size, decoded in the graph."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import onnx

from benchmarks.models.entry import Entry, images
from benchmarks.models.graph import GraphWriter

SIZE, CLASSES, ANCHORS = 320, 80, 6
STRIDES = (16, 32, 64)


def separable(g: GraphWriter, x: str, out: int, stride: int = 1) -> str:
    """Append a depthwise and a pointwise convolution, each with hard-swish."""
    channels = g.channels(x)
    x = g.op("HardSwish", g.conv(x, channels, 3, stride=stride, group=channels))
    return g.op("HardSwish", g.conv(x, out))


def anchors() -> np.ndarray:
    """Return the anchor boxes [1, boxes, 4]: centre x, centre y, width, height, as fractions of the image."""
    rows = []
    for level, stride in enumerate(STRIDES):
        cells = SIZE // stride
        for y, x in itertools.product(range(cells), repeat=2):
            for ratio, growth in itertools.product((0.5, 1.0, 2.0), (1.0, 1.4)):
                side = 0.12 * 1.9**level * growth
                centre = ((x + 0.5) / cells, (y + 0.5) / cells)
                rows.append((*centre, side * ratio**0.5, side / ratio**0.5))
    return np.array([rows], dtype=np.float32)


def head(g: GraphWriter, feature: str, per_anchor: int, cells: int) -> str:
    """Append an SSD head: [1, cells * cells * ANCHORS, per_anchor]."""
    x = g.conv(separable(g, feature, g.channels(feature)), ANCHORS * per_anchor)
    return g.op("Reshape", g.op("Transpose", x, perm=[0, 2, 3, 1]), g.ints(1, cells * cells * ANCHORS, per_anchor))


def skeleton() -> onnx.ModelProto:
    """Build SSD: image [1, 3, 320, 320] -> boxes [n, 4] (corners), scores [n], classes [n]; n is data-dependent."""
    g = GraphWriter("ssd_detector")
    x = g.op("HardSwish", g.conv(g.input("image", [1, 3, SIZE, SIZE]), 16, 3, stride=2))
    for out, stride in ((32, 1), (64, 2), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1)):
        x = separable(g, x, out, stride)
    features = [x]
    for out in (384, 256):
        features.append(separable(g, features[-1], out, 2))
    boxes, scores = [], []
    for feature, stride in zip(features, STRIDES, strict=True):
        boxes.append(head(g, feature, 4, SIZE // stride))
        scores.append(head(g, feature, CLASSES, SIZE // stride))
    offsets = g.op("Concat", *boxes, axis=1)
    # A learned scale, and the prior belief that a box shows nothing: scores must not saturate, for where they are
    # equal up to rounding NonMaxSuppression may order boxes either way and no two toolchains agree.
    scale = g.constant(np.array(0.3, dtype=np.float32), "scale")
    prior = g.constant(np.array(2.0, dtype=np.float32), "prior")
    logits = g.op("Mul", g.op("Concat", *scores, axis=1), scale)
    probabilities = g.op("Sigmoid", g.op("Sub", logits, prior))

    priors = anchors()
    centres = g.constant(priors[..., :2], "anchor_centres")
    sides = g.constant(priors[..., 2:], "anchor_sides")
    split = g.ints(2, 2)
    shift, growth = g.ops("Split", 2, offsets, split, axis=2)
    tenth = g.constant(np.array(0.1, dtype=np.float32), "variance")
    fifth = g.constant(np.array(0.2, dtype=np.float32), "variance")
    half = g.constant(np.array(0.5, dtype=np.float32), "half")
    centre = g.op("Add", g.op("Mul", g.op("Mul", shift, tenth), sides), centres)
    extent = g.op("Mul", g.op("Mul", g.op("Exp", g.op("Mul", growth, fifth)), sides), half)
    corners = g.op("Concat", g.op("Sub", centre, extent), g.op("Add", centre, extent), axis=2)

    by_class = g.op("Transpose", probabilities, perm=[0, 2, 1])
    return g.model(*_chosen(g, corners, by_class), rename=["boxes", "scores", "classes"])


def any_size_skeleton() -> onnx.ModelProto:
    """Build a detector without anchors: image [1, 3, height, width] -> boxes [n, 4], scores [n], classes [n].

    As FCOS (Tian et al., ICCV 2019): a feature pyramid, towers with GroupNorm, and of each cell the distances to the
    four sides of a box. The centres of the cells are computed from the shape of the feature map, so the image may have
    any size that 32 divides.
    """
    g = GraphWriter("fcos_detector")
    x = g.op("HardSwish", g.conv(g.input("image", [1, 3, "height", "width"]), 16, 3, stride=2))
    stages = []
    for out, stride in ((32, 1), (64, 2), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (384, 2), (384, 1)):
        x = separable(g, x, out, stride)
        if out in (128, 256, 384) and stride == 1:
            stages.append(x)
    boxes, scores = [], []
    for feature, stride in zip(_pyramid(g, stages, 96), (8, 16, 32), strict=True):
        tower = _normalised(g, _normalised(g, feature))
        sides = g.op("Mul", g.op("Exp", g.conv(tower, 4)), g.constant(np.array(stride, dtype=np.float32), "stride"))
        boxes.append(_decoded(g, sides, _centres(g, feature, stride)))
        scores.append(g.op("Reshape", g.conv(tower, CLASSES), g.ints(1, CLASSES, -1)))
    corners = g.op("Concat", *boxes, axis=1)
    scale = g.constant(np.array(0.3, dtype=np.float32), "scale")  # and a prior, as above
    prior = g.constant(np.array(2.0, dtype=np.float32), "prior")
    by_class = g.op("Sigmoid", g.op("Sub", g.op("Mul", g.op("Concat", *scores, axis=2), scale), prior))
    return g.model(*_chosen(g, corners, by_class), rename=["boxes", "scores", "classes"])


def _pyramid(g: GraphWriter, stages: Sequence[str], channels: int) -> list[str]:
    """Append a feature pyramid: each stage with what is coarser, enlarged, added to it."""
    twice = g.constant(np.array([1, 1, 2, 2], dtype=np.float32), "scales")
    merged = [g.conv(stages[-1], channels)]
    for stage in reversed(stages[:-1]):
        enlarged = g.op("Resize", merged[0], "", twice, mode="nearest", nearest_mode="floor")
        merged.insert(0, g.op("Add", g.conv(stage, channels), enlarged))
    return [g.conv(each, channels, 3) for each in merged]


def _normalised(g: GraphWriter, x: str) -> str:
    """Append a convolution with GroupNorm of 32 groups, as exporters write it, and Relu."""
    channels = g.channels(x)
    y = g.conv(x, channels, 3)
    ones, zeros = (g.constant(np.full(32, each, dtype=np.float32), "group") for each in (1, 0))
    grouped = g.op("InstanceNormalization", g.op("Reshape", y, g.ints(0, 32, -1)), ones, zeros, epsilon=1e-5)
    back = g.op("Reshape", grouped, g.op("Shape", y), channels=channels)
    scaled = g.op("Mul", back, g.weight("group_scale", channels, 1, 1))
    return g.op("Relu", g.op("Add", scaled, g.weight("group_bias", channels, 1, 1)))


def _centres(g: GraphWriter, feature: str, stride: int) -> tuple[str, str]:
    """Append the centres of a feature map's cells: x [1, width], y [height, 1]."""
    half, step = (g.constant(np.array(each, dtype=np.float32), "cell") for each in (0.5, stride))
    zero, one = (g.constant(np.array(each, dtype=np.int64), "ends") for each in (0, 1))
    made = []
    for axis, place in ((3, 0), (2, 1)):
        extent = g.op("Squeeze", g.op("Shape", feature, start=axis, end=axis + 1), g.ints(0))
        cells = g.op("Cast", g.op("Range", zero, extent, one), to=onnx.TensorProto.FLOAT)
        made.append(g.op("Unsqueeze", g.op("Mul", g.op("Add", cells, half), step), g.ints(place)))
    return made[0], made[1]


def _decoded(g: GraphWriter, sides: str, centres: tuple[str, str]) -> str:
    """Append corners [1, cells, 4] of boxes, from distances to their sides [1, 4, height, width]."""
    left, top, right, bottom = (g.op("Squeeze", each, g.ints(1)) for each in g.ops("Split", 4, sides, axis=1))
    x, y = centres
    corners = [g.op("Sub", x, left), g.op("Sub", y, top), g.op("Add", x, right), g.op("Add", y, bottom)]
    flat = [g.op("Reshape", each, g.ints(1, -1, 1)) for each in corners]
    return g.op("Concat", *flat, axis=2)


def _chosen(g: GraphWriter, corners: str, by_class: str) -> tuple[str, str, str]:
    """Append NonMaxSuppression, and gather what it chose: boxes, scores, classes."""
    most = g.constant(np.array([10], dtype=np.int64), "boxes_per_class")
    overlap = g.constant(np.array([0.5], dtype=np.float32), "iou_threshold")
    least = g.constant(np.array([0.3], dtype=np.float32), "score_threshold")
    chosen = g.op("NonMaxSuppression", corners, by_class, most, overlap, least)
    # Columns of `chosen`: image, class, box.
    box = g.op("Gather", chosen, g.constant(np.array(2, dtype=np.int64), "column"), axis=1)
    kind = g.op("Gather", chosen, g.constant(np.array(1, dtype=np.int64), "column"), axis=1)
    kept = g.op("Gather", g.op("Squeeze", corners, g.ints(0)), box, axis=0)
    return kept, g.op("GatherND", by_class, chosen), kind


ENTRIES = (
    Entry(
        name="ssd_detector",
        about="SSD with 80 classes; decoding and NonMaxSuppression in the graph",
        skeleton=skeleton,
        inputs=images("image", 1, 3, SIZE, SIZE),
    ),
)
