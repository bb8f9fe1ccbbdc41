"""Compute GridSample for all points at once."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from collage.reference.kernels.windows import Array

_CUBIC_ALPHA = -0.75

_MODES = {"bilinear": "linear", "bicubic": "cubic"}  # as opset 16 spelt them


def grid_sample(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> tuple[Array, ...]:
    """Compute GridSample over any number of spatial axes; one pass per tap of the interpolation."""
    x, grid = inputs
    size = x.shape[2:]
    mode = str(attributes.get("mode", "linear"))
    mode = _MODES.get(mode, mode)
    padding = str(attributes.get("padding_mode", "zeros"))
    align = bool(attributes.get("align_corners", 0))
    taps = [
        # the grid names its coordinates from the last axis to the first
        _taps(grid[..., len(size) - 1 - axis], length, mode, padding, align)
        for axis, length in enumerate(size)
    ]
    batch = np.arange(x.shape[0]).reshape(-1, *[1] * (grid.ndim - 2))
    channels_last = np.moveaxis(x, 1, -1)
    result = np.zeros((*grid.shape[:-1], x.shape[1]), np.float64)
    for choice in itertools.product(*taps):
        weight = np.ones(grid.shape[:-1])
        for _, factor in choice:
            weight = weight * factor
        pixels = channels_last[(batch, *(index for index, _ in choice))]
        result += pixels * weight[..., None]
    return (np.moveaxis(result, -1, 1).astype(x.dtype),)


def _taps(grid: Array, length: int, mode: str, padding: str, align: bool) -> list[tuple[Array, Array]]:
    """Return (index, weight) arrays of the pixels along one axis that each point mixes."""
    low, high = (0.0, length - 1.0) if align else (-0.5, length - 0.5)
    at = (grid + 1) / 2.0 * (length - 1) if align else ((grid + 1) * length - 1) / 2.0
    if mode == "nearest":
        at = np.rint(at)
    if padding == "border":
        at = np.where((at < low) | (at > high), np.clip(at, 0, length - 1), at)
    elif padding == "reflection":
        at = _reflected(at, low, high).astype(at.dtype)
    first = np.floor(at)
    part = (at - first).astype(np.float64)
    if mode == "nearest":
        steps, weights = [0], [np.ones_like(part)]
    elif mode == "linear":
        steps, weights = [0, 1], [1 - part, part]
    else:
        steps, weights = [-1, 0, 1, 2], _cubic_weights(part)
    return [
        _pixel(first.astype(np.int64) + step, weight, length, padding, low, high)
        for step, weight in zip(steps, weights, strict=True)
    ]


def _pixel(index: Array, weight: Array, length: int, padding: str, low: float, high: float) -> tuple[Array, Array]:
    if padding == "zeros":
        inside = (index >= 0) & (index < length)
        return np.where(inside, index, 0), np.where(inside, weight, 0.0)
    if padding == "reflection":
        index = np.trunc(_reflected(index, low, high)).astype(np.int64)
    return np.clip(index, 0, length - 1), weight


def _reflected(at: Array, low: float, high: float) -> Array:
    """Fold coordinates back at both borders until they lie between them."""
    span = high - low
    if span == 0:
        return np.full(at.shape, low)
    distance = np.where(at < low, low - at, at - high)
    times = np.trunc(distance / span)
    rest = distance - times * span
    even = times % 2 == 0
    below = np.where(even, low + rest, high - rest)
    above = np.where(even, high - rest, low + rest)
    return np.where(at < low, below, np.where(at > high, above, at))


def _cubic_weights(part: Array) -> list[Array]:
    """Return the weights of Keys' cubic convolution, https://ieeexplore.ieee.org/document/1163711."""
    a = _CUBIC_ALPHA

    def near(t: Array) -> Array:
        return ((a + 2) * t - (a + 3)) * t * t + 1

    def far(t: Array) -> Array:
        return ((a * t - 5 * a) * t + 8 * a) * t - 4 * a

    return [far(part + 1), near(part), near(1 - part), far(2 - part)]
