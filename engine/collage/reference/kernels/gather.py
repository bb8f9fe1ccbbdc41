"""Compute operators that move elements: GatherElements, ScatterElements and Pad."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from collage.reference.kernels.windows import Array, all_inputs, pad_or_crop

_REDUCTIONS: Mapping[str, np.ufunc] = {
    "add": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "mul": np.multiply,
}


def gather_elements(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> tuple[Array, ...]:
    """Compute GatherElements.

    ONNX's goes through `np.choose`, which takes 64 choices at most; beyond, it returns one element per row or raises
    (onnx 1.23, `op_gather_elements.py`: data (1, 512), indices (1, 128) raises ValueError).
    """
    data, indices = inputs[0], inputs[1]
    return (data[_positions(data, indices, attributes.get("axis", 0))],)


def scatter_elements(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> tuple[Array, ...]:
    """Compute ScatterElements; of equal indices without reduction the last wins, as in ONNX's loop."""
    data, indices, updates = inputs
    result = data.copy()
    where = _positions(data, indices, attributes.get("axis", 0))
    reduction = _REDUCTIONS.get(attributes.get("reduction", "none"))
    if reduction is None:
        result[where] = updates
    else:
        reduction.at(result, where, updates)
    return (result,)


def pad(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """Compute Pad with constants where an amount is negative, which crops; ONNX's raises ValueError."""
    if len(inputs) == 1 or attributes.get("mode", "constant") != "constant":
        return NotImplemented  # before opset 11, the amounts are an attribute
    x, amounts, fill, axes = all_inputs(inputs, 4)
    if (amounts >= 0).all():
        return NotImplemented
    widths = [(0, 0)] * x.ndim
    for axis, before, after in zip(range(x.ndim) if axes is None else axes, *np.split(amounts, 2), strict=True):
        widths[axis] = (int(before), int(after))
    return (pad_or_crop(x, widths, 0 if fill is None else fill.reshape(()).astype(x.dtype)),)


def _positions(data: Array, indices: Array, axis: int) -> tuple[Array, ...]:
    grid = list(np.ogrid[tuple(slice(n) for n in indices.shape)])
    axis %= data.ndim
    grid[axis] = np.where(indices < 0, indices + data.shape[axis], indices)
    return tuple(grid)
