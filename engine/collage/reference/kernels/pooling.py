"""Compute MaxPool, AveragePool, LpPool and GlobalLpPool, axis by axis.

ONNX's pooling visits every window in Python. It also differs from the standard's formulas; this module follows the
formulas, as ONNX Runtime and OpenVINO do (onnx 1.23, `op_pool_common.py`, `op_max_pool.py`):
with `ceil_mode`, half of the last window's overhang is put *before* the input, which moves every window;
`SAME_*` ignores dilations; MaxPool's `SAME_LOWER` rounds the output size down and splits pads as `SAME_UPPER`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from collage.reference.kernels.windows import Array, Windows, offset_slice, padded, slide, view


def max_pool(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> tuple[Array, ...]:
    """Compute MaxPool; the indices too, which cost most, so `with_indices` is a kernel of its own."""
    x = inputs[0]
    windows = slide(attributes, x.shape[2:], attributes["kernel_shape"])
    result = padded(x, windows, _lowest(x))
    for axis in range(len(windows.kernel)):
        result = _along(result, windows, axis, np.maximum)
    return (result,)


def max_pool_with_indices(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> tuple[Array, ...]:
    """Compute MaxPool and the flat index of each maximum, the first one in a window."""
    x = inputs[0]
    size = x.shape[2:]
    windows = slide(attributes, size, attributes["kernel_shape"])
    every = view(padded(x, windows, _lowest(x)), windows)
    rank = len(size)
    flat = every.reshape(*every.shape[: 2 + rank], -1)
    best = flat.argmax(axis=-1)
    values = np.take_along_axis(flat, best[..., None], axis=-1)[..., 0]
    index = np.zeros(best.shape, np.int64)
    offsets = np.unravel_index(best, windows.kernel)
    weights = np.cumprod([1, *size[:0:-1]])[::-1]
    if attributes.get("storage_order"):
        weights = np.cumprod([1, *size[:-1]])
    for axis, offset in enumerate(offsets):
        start = np.arange(windows.out[axis]) * windows.strides[axis] - windows.begin[axis]
        shape = [1] * best.ndim
        shape[2 + axis] = -1
        coordinate = start.reshape(shape) + offset * windows.dilations[axis]
        index += coordinate * int(weights[axis])
    images = np.arange(x.shape[0] * x.shape[1]).reshape(x.shape[0], x.shape[1], *[1] * rank)
    return values, index + images * int(np.prod(size))


def average_pool(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> tuple[Array, ...]:
    """Compute AveragePool; sums in float64."""
    x = inputs[0]
    windows = slide(attributes, x.shape[2:], attributes["kernel_shape"])
    result = padded(x, windows, 0).astype(np.float64)
    counts = np.ones([1] * x.ndim)
    for axis, size in enumerate(x.shape[2:]):
        result = _along(result, windows, axis, np.add)
        length = windows.begin[axis] + size + windows.end[axis] + windows.extra[axis]
        inside = np.zeros(length)
        if attributes.get("count_include_pad"):
            inside[: length - windows.extra[axis]] = 1
        else:
            inside[windows.begin[axis] : windows.begin[axis] + size] = 1
        count = sum(inside[offset_slice(windows, axis, position)] for position in range(windows.kernel[axis]))
        shape = [1] * x.ndim
        shape[2 + axis] = -1
        counts = counts * np.reshape(count, shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        return ((result / counts).astype(x.dtype),)


def lp_pool(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> tuple[Array, ...]:
    """Compute LpPool; sums in float64."""
    x = inputs[0]
    power = attributes.get("p", 2)
    windows = slide(attributes, x.shape[2:], attributes["kernel_shape"])
    result = np.abs(padded(x, windows, 0).astype(np.float64)) ** power
    for axis in range(len(windows.kernel)):
        result = _along(result, windows, axis, np.add)
    return ((result ** (1.0 / power)).astype(x.dtype),)


def global_lp_pool(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> tuple[Array, ...]:
    """Compute GlobalLpPool, which ONNX's evaluator lacks."""
    x = inputs[0]
    power = attributes.get("p", 2)
    total = np.sum(np.abs(x.astype(np.float64)) ** power, axis=tuple(range(2, x.ndim)), keepdims=True)
    return ((total ** (1.0 / power)).astype(x.dtype),)


def _along(x: Array, windows: Windows, axis: int, combine: np.ufunc) -> Array:
    """Combine the elements of every window along one spatial axis."""
    prefix = (slice(None),) * (2 + axis)
    result = x[(*prefix, offset_slice(windows, axis, 0))].copy()
    for position in range(1, windows.kernel[axis]):
        combine(result, x[(*prefix, offset_slice(windows, axis, position))], out=result)
    return result


def _lowest(x: Array) -> Any:
    return -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
