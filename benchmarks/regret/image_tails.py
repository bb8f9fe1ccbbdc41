"""Tails of dense predictors, detectors and image generators."""

from __future__ import annotations

import functools
import random
from typing import Any

import numpy as np
from onnx import TensorProto

from benchmarks.models.graph import GraphWriter
from benchmarks.regret.feature import Feature, Tail

Outputs = tuple[str, ...]


def _resized(g: GraphWriter, x: str, mode: str, height: int, width: int) -> str:
    """Append a resize of an image, with the coordinates that PyTorch's exporter writes for the mode."""
    sizes = g.ints(1, g.channels(x), height, width)
    how: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": "half_pixel"}
    if mode == "nearest":
        how |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    elif mode == "cubic":
        how["cubic_coeff_a"] = -0.75
    return g.op("Resize", x, "", "", sizes, **how)


def upsample_argmax(mode: str, g: GraphWriter, x: Feature, draw: random.Random) -> Outputs:
    """Append a segmenter's head: logits of K classes, upsampled, and the class of each pixel."""
    classes, factor = draw.choice([(8, 2), (12, 2)] if mode == "cubic" else [(19, 4), (21, 4), (80, 2), (150, 2)])
    height, width = x.shape[2] * factor, x.shape[3] * factor
    logits = _resized(g, g.conv(x.tensor, classes), mode, height, width)
    return (g.op("ArgMax", logits, axis=1, keepdims=0),)


def upsample_softmax(g: GraphWriter, x: Feature, draw: random.Random) -> Outputs:
    """Append a segmenter's head that also says how sure it is of each pixel."""
    classes, factor = draw.choice([(12, 4), (21, 2), (40, 2)])
    logits = _resized(g, g.conv(x.tensor, classes), "linear", x.shape[2] * factor, x.shape[3] * factor)
    shares = g.op("Softmax", logits, axis=1)
    return g.op("ArgMax", logits, axis=1, keepdims=0), g.op("ReduceMax", shares, axes=[1], keepdims=0)


def pixel_shuffle(g: GraphWriter, x: Feature, draw: random.Random) -> Outputs:
    """Append super-resolution's output: pixels out of channels, as uint8."""
    factor = draw.choice([2, 4])
    y = g.conv(x.tensor, 3 * factor * factor, 3)
    y = g.op("Sigmoid", g.op("DepthToSpace", y, blocksize=factor, mode="CRD", channels=3))
    y = g.op("Mul", y, g.constant(np.array(255.0, dtype=np.float32), "white"))
    return (g.op("Transpose", y, perm=[0, 2, 3, 1]),)


def cubic(g: GraphWriter, x: Feature, draw: random.Random) -> Outputs:
    """Append an image that is enlarged by cubic interpolation and corrected by a pixel shuffle."""
    factor = draw.choice([2, 4])
    small = g.conv(x.tensor, 3)
    detail = g.op("DepthToSpace", g.conv(x.tensor, 3 * factor * factor), blocksize=factor, mode="CRD", channels=3)
    enlarged = _resized(g, small, "cubic", x.shape[2] * factor, x.shape[3] * factor)
    return (g.op("Add", enlarged, detail),)


def warp(g: GraphWriter, x: Feature, draw: random.Random) -> Outputs:
    """Append a warp of the features along a flow predicted from them."""
    _, _, height, width = x.shape
    flow = g.op("Transpose", g.conv(x.tensor, 2, 3), perm=[0, 2, 3, 1])
    rows, columns = np.meshgrid(np.linspace(-1, 1, height), np.linspace(-1, 1, width), indexing="ij")
    places = np.stack([columns, rows], axis=-1)[None].astype(np.float32)
    step = g.constant(np.array(0.1, dtype=np.float32), "step")
    grid = g.op("Add", g.op("Mul", flow, step), g.constant(places, "places"))
    return (g.op("GridSample", x.tensor, grid, mode="bilinear", padding_mode="border", align_corners=1),)


def peaks(g: GraphWriter, x: Feature, draw: random.Random) -> Outputs:
    """Append CenterNet's head (1904.07850): the best local maxima of a map for each class."""
    classes = draw.choice([20, 80])
    logits = g.conv(x.tensor, classes)
    highest = g.op("MaxPool", logits, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[1, 1])
    is_peak = g.op("Cast", g.op("Equal", logits, highest), to=TensorProto.FLOAT)
    scores = g.op("Reshape", g.op("Mul", logits, is_peak), g.ints(1, -1))
    best, places = g.ops("TopK", 2, scores, g.ints(32), axis=1)
    return best, places


def keypoints(g: GraphWriter, x: Feature, draw: random.Random) -> Outputs:
    """Append the choice of key points and the gathering of their descriptors."""
    cells = x.shape[2] * x.shape[3]
    scores = g.op("Reshape", g.conv(x.tensor, 1, 3), g.ints(cells))
    best, places = g.ops("TopK", 2, scores, g.ints(min(128, cells // 8)), axis=0)
    descriptors = g.op("Transpose", g.op("Reshape", x.tensor, g.ints(x.channels, cells)), perm=[1, 0])
    return best, g.op("Gather", descriptors, places, axis=0)


def boxes(g: GraphWriter, x: Feature, draw: random.Random) -> Outputs:
    """Append a detector's head with one anchor a cell, and NonMaxSuppression."""
    classes, cells = draw.choice([8, 20]), x.shape[2] * x.shape[3]
    rows, columns = np.divmod(np.arange(cells), x.shape[3])
    centres = np.stack([(columns + 0.5) / x.shape[3], (rows + 0.5) / x.shape[2]], axis=-1)
    # corners in hundredths of the image: y1, x1, y2, x2 of a box of a tenth of it around each cell's centre
    anchors = 100 * np.concatenate([centres[:, ::-1] - 0.05, centres[:, ::-1] + 0.05], axis=-1)[None]
    # Scores before boxes: the last convolution's results vary more (`weights.fill`), and where scores saturate they are
    # equal up to rounding, and no two implementations order boxes alike.
    scores = g.op("Sigmoid", g.op("Reshape", g.conv(x.tensor, classes), g.ints(1, classes, cells)))
    offsets = g.op("Transpose", g.op("Reshape", g.conv(x.tensor, 4), g.ints(1, 4, cells)), perm=[0, 2, 1])
    corners = g.op("Add", offsets, g.constant(anchors.astype(np.float32), "anchors"))
    most = g.constant(np.array([10], dtype=np.int64), "boxes_per_class")
    overlap = g.constant(np.array([0.5], dtype=np.float32), "iou_threshold")
    least = g.constant(np.array([0.6], dtype=np.float32), "score_threshold")
    return (g.op("NonMaxSuppression", corners, scores, most, overlap, least),)


def style(g: GraphWriter, x: Feature, draw: random.Random) -> Outputs:
    """Append the end of a style transfer network: convolutions with InstanceNormalization, and an upsampling."""
    y, width = x.tensor, draw.choice([32, 48])
    for _ in range(2):
        y = g.conv(y, width, 3)
        y = g.op("InstanceNormalization", y, g.weight("norm_scale", width), g.weight("norm_bias", width))
    return (_resized(g, y, "nearest", x.shape[2] * 2, x.shape[3] * 2),)


def dilated(g: GraphWriter, x: Feature, draw: random.Random) -> Outputs:
    """Append DeepLab's pyramid of dilated convolutions (1706.05587), and the class of each cell."""
    width = draw.choice([24, 32])
    branches = [g.conv(x.tensor, width, 3, dilation=rate) for rate in (2, 4)]
    y = g.op("Relu", g.op("Concat", *branches, axis=1, channels=2 * width))
    return (g.op("ArgMax", g.conv(y, 21), axis=1, keepdims=0),)


def classes(g: GraphWriter, x: Feature, draw: random.Random) -> Outputs:
    """Append a classifier whose answer is looked up: five best labels, each with an embedding."""
    labels = draw.choice([5000, 20000])
    y = g.op("Flatten", g.op("GlobalAveragePool", x.tensor), axis=1)
    y = g.op("Gemm", y, g.weight("gemm_weight", labels, x.channels), g.weight("gemm_bias", labels), transB=1)
    best, places = g.ops("TopK", 2, y, g.ints(5), axis=1)
    return g.op("Softmax", best, axis=1), g.op("Gather", g.weight("labels", labels, 64), places, axis=0)


TAILS = (
    Tail(name="bilinear-argmax", takes=("image",), operators=3, build=functools.partial(upsample_argmax, "linear")),
    Tail(name="cubic-argmax", takes=("image",), operators=3, build=functools.partial(upsample_argmax, "cubic")),
    Tail(name="nearest-argmax", takes=("image",), operators=3, build=functools.partial(upsample_argmax, "nearest")),
    Tail(name="bilinear-softmax", takes=("image",), operators=5, build=upsample_softmax),
    Tail(name="pixel-shuffle", takes=("image",), operators=5, build=pixel_shuffle),
    Tail(name="cubic-skip", takes=("image",), operators=5, build=cubic),
    Tail(name="grid-sample", takes=("image",), operators=5, build=warp),
    Tail(name="peaks-topk", takes=("image",), operators=6, build=peaks),
    Tail(name="topk-gather", takes=("image",), operators=4, build=keypoints),
    Tail(name="nms", takes=("image",), operators=6, build=boxes),
    Tail(name="instance-norm", takes=("image",), operators=5, build=style),
    Tail(name="dilated", takes=("image",), operators=6, build=dilated),
    Tail(name="label-lookup", takes=("image",), operators=5, build=classes),
)
