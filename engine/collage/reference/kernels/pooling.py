"""Compute MaxPool, AveragePool, LpPool and the global poolings, axis by axis.

ONNX's pooling visits every window in Python. It also differs from the standard's formulas; this module follows the
formulas, as ONNX Runtime and OpenVINO do (onnx 1.23, `op_pool_common.py`, `op_max_pool.py`):
with `ceil_mode`, half of the last window's overhang is put *before* the input, which moves every window;
`SAME_*` ignores dilations; MaxPool's `SAME_LOWER` rounds the output size down and splits pads as `SAME_UPPER`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from collage.reference.kernels.windows import EVERY, Array, Windows, slide, written_out


def max_pool(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> tuple[Array, ...]:
    """Compute MaxPool; the indices too, which cost most, so `with_indices` is a kernel of its own."""
    x = inputs[0]
    windows = slide(attributes, x.shape[2:], attributes["kernel_shape"])
    return (_pooled(x, windows, np.maximum, _lowest(x), x.dtype),)


def max_pool_with_indices(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> tuple[Array, ...]:
    """Compute MaxPool and the flat index of each maximum, the first one in a window; NaN is a maximum."""
    x = inputs[0]
    size = x.shape[2:]
    windows = slide(attributes, size, attributes["kernel_shape"])
    nowhere = math.prod(size)  # after every element
    values, places = x, np.broadcast_to(np.arange(nowhere).reshape(size), x.shape)
    for axis in windows.shrinking_first():
        best = _along(values, windows, axis, np.maximum, _lowest(x))
        first = np.full(best.shape, nowhere)
        undefined = best.dtype.kind == "f" and bool(np.isnan(best).any())
        for _, outs, ins in windows.taps(axis):
            source, into = values[_at(axis, ins)], first[_at(axis, outs)]
            chosen = source == best[_at(axis, outs)]
            if undefined:
                chosen |= np.isnan(source)
            np.minimum(into, np.where(chosen, places[_at(axis, ins)], nowhere), out=into)
        values, places = best, first
    places[places == nowhere] = 0  # of windows that hold padding alone
    if attributes.get("storage_order"):
        places = np.ravel_multi_index(np.unravel_index(places, size), size, order="F")
    images = np.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *[1] * len(size))
    return values, places + images * nowhere


def average_pool(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> tuple[Array, ...]:
    """Compute AveragePool; sums in float64."""
    x = inputs[0]
    windows = slide(attributes, x.shape[2:], attributes["kernel_shape"])
    result = _pooled(x, windows, np.add, 0, np.float64)
    with_padding = bool(attributes.get("count_include_pad"))
    counts = [windows.counts(axis, with_padding=with_padding).astype(np.float64) for axis in range(len(windows.size))]
    with np.errstate(divide="ignore", invalid="ignore"):
        result /= functools.reduce(np.multiply.outer, counts)
    return (result.astype(x.dtype),)


def lp_pool(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> tuple[Array, ...]:
    """Compute LpPool; sums in float64."""
    x = inputs[0]
    power = attributes.get("p", 2)
    windows = slide(attributes, x.shape[2:], attributes["kernel_shape"])
    result = _pooled(_powers(x, power), windows, np.add, 0, np.float64)
    result **= 1.0 / power
    return (result.astype(x.dtype),)


def global_max_pool(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> tuple[Array, ...]:
    """Compute GlobalMaxPool; ONNX's reduces two axes, whatever the rank (onnx 1.23, `op_global_max_pool.py`)."""
    del attributes
    x = inputs[0]
    return (x.max(axis=tuple(range(2, x.ndim)), keepdims=True),)


def global_lp_pool(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> tuple[Array, ...]:
    """Compute GlobalLpPool, which ONNX's evaluator lacks."""
    x = inputs[0]
    power = attributes.get("p", 2)
    total = np.sum(_powers(x, power), axis=tuple(range(2, x.ndim)), keepdims=True)
    return ((total ** (1.0 / power)).astype(x.dtype),)


def _powers(x: Array, power: int) -> Array:
    result: Array = np.abs(x, dtype=np.float64)
    result **= power
    return result


def _pooled(x: Array, windows: Windows, combine: np.ufunc, neutral: Any, dtype: Any) -> Array:
    """Combine the elements of every window that lie in the input; `neutral` where none does."""
    x, windows = written_out(x, windows, neutral)
    x = x.astype(dtype, copy=False)
    for axis in windows.shrinking_first():
        x = _along(x, windows, axis, combine, neutral)
    return x


def _along(x: Array, windows: Windows, axis: int, combine: np.ufunc, neutral: Any) -> Array:
    """Combine the elements of every window along one axis."""
    taps = windows.taps(axis)
    # one that all windows have saves filling with the neutral element
    first = next((tap for tap in taps if tap[1] == slice(0, windows.out[axis])), None)
    if first is None:
        result = np.full((*x.shape[: 2 + axis], windows.out[axis], *x.shape[3 + axis :]), neutral, x.dtype)
    else:
        result = x[_at(axis, first[2])].copy()
    for tap in taps:
        if tap is not first:
            part = result[_at(axis, tap[1])]
            combine(part, x[_at(axis, tap[2])], out=part)
    return result


def _at(axis: int, elements: slice) -> tuple[slice, ...]:
    return (*(EVERY,) * (2 + axis), elements)


def _lowest(x: Array) -> Any:
    return -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
