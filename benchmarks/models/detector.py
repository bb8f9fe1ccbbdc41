"""A detector that ends in NonMaxSuppression: SSD heads on a small backbone, decoding in the graph."""

from __future__ import annotations

import itertools

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
    most = g.constant(np.array([10], dtype=np.int64), "boxes_per_class")
    overlap = g.constant(np.array([0.5], dtype=np.float32), "iou_threshold")
    least = g.constant(np.array([0.3], dtype=np.float32), "score_threshold")
    chosen = g.op("NonMaxSuppression", corners, by_class, most, overlap, least)
    # Columns of `chosen`: image, class, box.
    box = g.op("Gather", chosen, g.constant(np.array(2, dtype=np.int64), "column"), axis=1)
    kind = g.op("Gather", chosen, g.constant(np.array(1, dtype=np.int64), "column"), axis=1)
    kept = g.op("Gather", g.op("Squeeze", corners, g.ints(0)), box, axis=0)
    score = g.op("GatherND", by_class, chosen)
    return g.model(kept, score, kind, rename=["boxes", "scores", "classes"])


ENTRIES = (
    Entry(
        name="ssd_detector",
        about="SSD with 80 classes; decoding and NonMaxSuppression in the graph",
        skeleton=skeleton,
        inputs=images("image", 1, 3, SIZE, SIZE),
    ),
)
