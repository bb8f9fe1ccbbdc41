"""Compute Resize axis by axis, some rows of the output at a time.

Interpolation is separable by axis and linear in the pixels: an axis is resized by a matrix with a few elements per row.
No more of it is made than one product with BLAS needs. Coordinates, weights and rounding are those of ONNX's own Resize
(onnx 1.23, `op_resize.py`), which gathers all pixels that a row of the output weighs, side by side, for all rows. But
the nearest element is that nearest to a place in float32, as ONNX Runtime 1.32 and OpenVINO 2026.4 have it; the
standard leaves that open. At a scale of 1/3 ONNX's own, in float64, takes the element before it nearly everywhere,
because the float32 number next to 1/3 is larger.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from collage.reference.kernels.windows import EVERY, Array, all_inputs

_BLOCK_SPAN = 64
"""Elements of the input that a block of rows advances by: few enough to compute little with zeros."""

_MOST_ROWS = 256


@dataclasses.dataclass(frozen=True, slots=True)
class _Axis:
    """How one axis is resized.

    Attributes:
        number: The axis.
        scale: Scale of its length, as given or by the sizes.
        length: Length it gets.
        roi: First and last coordinate of the region that is cropped to, as a share of the input; in the type given,
            whose rounding decides which element is nearest.
    """

    number: int
    scale: float
    length: int
    roi: tuple[Any, Any]


def resize(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """Compute Resize as of opset 11."""
    x, roi, scales, sizes = all_inputs(inputs, 4)
    nearest = attributes["mode"] == "nearest"
    coordinates = attributes.get("coordinate_transformation_mode")
    if len(inputs) == 2 or coordinates not in COORDINATES or (nearest and attributes.get("antialias")):
        return NotImplemented  # opset 10 has other coordinates
    cropped = coordinates == "tf_crop_and_resize"
    result = x if nearest or x.dtype in (np.float32, np.float64) else x.astype(np.float64)
    beyond = []
    for axis in _axes(x.shape, roi if cropped else None, scales, sizes, attributes):
        length = x.shape[axis.number]
        if axis.length == length and math.isclose(axis.scale, 1.0) and axis.roi == (0.0, 1.0):
            continue
        kind = np.float32 if nearest else np.float64
        positions = COORDINATES[coordinates](np.arange(axis.length, dtype=kind), axis, length)
        if nearest:
            result = np.take(result, _nearest(positions, length, attributes["nearest_mode"]), axis=axis.number)
        else:
            result = _interpolated(result, axis, positions, attributes)
        if cropped:
            beyond.append((*(EVERY,) * axis.number, (positions < 0) | (positions > length - 1)))
    for where in beyond:
        result[where] = attributes["extrapolation_value"]
    return (_saturated(result, x.dtype),)


def _axes(shape: Sequence[int], roi: Any, scales: Any, sizes: Any, attributes: Mapping[str, Any]) -> list[_Axis]:
    """Return how each axis is resized; those that shrink first, so that nothing between is larger than both ends."""
    numbers = [axis % len(shape) for axis in attributes.get("axes") or range(len(shape))]
    if sizes is not None and sizes.size > 0:
        lengths = [int(size) for size in sizes]
        factors = [length / shape[axis] for axis, length in zip(numbers, lengths, strict=True)]
        policy = attributes.get("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            factors = [min(factors) if policy == "not_larger" else max(factors)] * len(numbers)
            lengths = [int(factor * shape[axis] + 0.5) for axis, factor in zip(numbers, factors, strict=True)]
    else:
        factors = [float(scale) for scale in scales]
        lengths = [int(factor * shape[axis]) for axis, factor in zip(numbers, factors, strict=True)]
    edges = [0.0] * len(numbers) + [1.0] * len(numbers) if roi is None else list(roi)
    regions = zip(edges[: len(numbers)], edges[len(numbers) :], strict=True)
    axes = [_Axis(*each) for each in zip(numbers, factors, lengths, regions, strict=True)]
    return sorted(axes, key=lambda axis: axis.length / max(shape[axis.number], 1))


def _half_pixel(at: Array, axis: _Axis, length: int) -> Array:
    return (at + 0.5) / axis.scale - 0.5


def _half_pixel_symmetric(at: Array, axis: _Axis, length: int) -> Array:
    # as if the output were centred on the input; in ONNX's order, since rounding decides which element is nearest
    offset = length / 2 * (1 - axis.length / (axis.scale * length))
    return offset + (at + 0.5) / axis.scale - 0.5


def _pytorch_half_pixel(at: Array, axis: _Axis, length: int) -> Array:
    return np.full_like(at, -0.5) if axis.scale * length == 1 else _half_pixel(at, axis, length)


def _align_corners(at: Array, axis: _Axis, length: int) -> Array:
    out = axis.scale * length
    return np.zeros_like(at) if out == 1 else at * (length - 1) / (out - 1)


def _asymmetric(at: Array, axis: _Axis, length: int) -> Array:
    return at / axis.scale


def _crop(at: Array, axis: _Axis, length: int) -> Array:
    out, (start, end) = axis.scale * length, axis.roi
    inside: Array
    if out == 1:
        inside = np.full_like(at, (end - start) * (length - 1) / 2)
    else:
        inside = at * (end - start) * (length - 1) / (out - 1)
    return inside + float(start * (length - 1))


COORDINATES = {
    "align_corners": _align_corners,
    "asymmetric": _asymmetric,
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _half_pixel_symmetric,
    "pytorch_half_pixel": _pytorch_half_pixel,
    "tf_crop_and_resize": _crop,
}
"""Where in the input the elements of the output are."""


def _nearest(positions: Array, length: int, rounding: str) -> Array:
    """Return the index of the nearest element for each position."""
    low = np.floor(positions)
    match rounding:
        case "round_prefer_floor":
            low += positions - low > 0.5
        case "round_prefer_ceil":
            low += positions - low >= 0.5
        case "ceil":
            low += positions > low
    return np.clip(low, 0, length - 1).astype(np.intp)


def _interpolated(x: Array, axis: _Axis, positions: Array, attributes: Mapping[str, Any]) -> Array:
    """Compute the interpolation along one axis, a block of rows by one product."""
    number, length = axis.number, x.shape[axis.number]
    result = np.empty((*x.shape[:number], axis.length, *x.shape[number + 1 :]), x.dtype)
    if result.size == 0:
        return result
    last = number == x.ndim - 1
    folded = x.reshape(math.prod(x.shape[:number]), length, -1)
    into = result.reshape(len(folded), axis.length, -1)
    step = abs(positions[-1] - positions[0]) / max(axis.length - 1, 1)
    rows = int(min(_MOST_ROWS, max(1.0, _BLOCK_SPAN // max(step, 0.25))))
    for start in range(0, axis.length, rows):
        block = slice(start, min(start + rows, axis.length))
        first, weights = _weights(positions[block], axis.scale, length, attributes)
        index = np.clip(first[:, None] + np.arange(weights.shape[1]), 0, length - 1)
        low, high = index.min(), index.max() + 1
        matrix = np.zeros((len(index), high - low))
        np.add.at(matrix, (np.arange(len(index))[:, None], index - low), weights)
        matrix = matrix.astype(x.dtype)
        if last:
            np.matmul(folded[:, low:high, 0], matrix.T, out=into[:, block, 0])
        else:
            np.matmul(matrix, folded[:, low:high], out=into[:, block])
    return result


def _weights(positions: Array, scale: float, length: int, attributes: Mapping[str, Any]) -> tuple[Array, Array]:
    """Return for each position the index of the first of some neighbouring elements, and the weights of them all.

    The element before a position that is an integer counts as its neighbour, with a weight of 0.
    """
    left = np.ceil(positions) - 1
    shrunk = min(scale, 1.0) if attributes.get("antialias") else 1.0
    reach = 1 if attributes["mode"] == "linear" else 2
    # of the neighbours in the input, or, to smooth what is left out, in the output
    before = int(np.floor(-reach / shrunk) + 1)
    steps = np.arange(before, 2 - before)
    distance = np.abs(steps - (positions - left)[:, None]) * shrunk
    weights = np.maximum(1 - distance, 0) if reach == 1 else _cubic(distance, attributes["cubic_coeff_a"])
    first = left.astype(np.int64) + before
    if attributes.get("exclude_outside"):
        index = first[:, None] + np.arange(len(steps))
        weights = np.where((index < 0) | (index >= length), 0.0, weights)
    total = weights.sum(axis=1, keepdims=True)
    return first, weights / np.where(total == 0, 1.0, total)


def _cubic(distance: Array, a: float) -> Array:
    """Return the weights of Keys' cubic convolution, https://ieeexplore.ieee.org/document/1163711."""
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))


def _saturated(result: Array, dtype: Any) -> Array:
    """Return the result in the input's element type, integers rounded and clipped."""
    if result.dtype == dtype:
        return result
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        np.clip(np.rint(result, out=result), limits.min, limits.max, out=result)
    return result.astype(dtype)
