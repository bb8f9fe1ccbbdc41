"""Compute convolutions of integers in float64: exact below 2**53, and NumPy has BLAS for it.

ONNX's write zeros between the elements of a dilated kernel and gather every window (onnx 1.23, `op_conv.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from collage.reference.kernels.convolution import convolve
from collage.reference.kernels.windows import Array, all_inputs, slide


def conv_integer(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> tuple[Array, ...]:
    """Compute ConvInteger."""
    x, weight, x_zero, weight_zero = all_inputs(inputs, 4)
    return (_int32(_shifted_products(x, x_zero, weight, weight_zero, attributes)),)


def qlinear_conv(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> tuple[Array, ...]:
    """Compute QLinearConv; the sum as int32, its scaling in float64, as ONNX's does."""
    x, x_scale, x_zero, weight, weight_scale, weight_zero, scale, zero, bias = all_inputs(inputs, 9)
    total = _shifted_products(x, x_zero, weight, weight_zero, attributes)
    if bias is not None:
        total += _per_filter(bias, x.ndim - 1)
    rescaled = _int32(total) * (x_scale * _per_filter(weight_scale, x.ndim - 1) / scale)
    kind = x.dtype if zero is None else zero.dtype
    if zero is not None:
        rescaled += zero
    limits = np.iinfo(kind)
    np.clip(rescaled, limits.min, limits.max, out=rescaled)
    return (np.round(rescaled, out=rescaled).astype(kind),)


def _shifted_products(x: Array, x_zero: Any, weight: Array, weight_zero: Any, attributes: Mapping[str, Any]) -> Array:
    """Return the convolution of what is left of both operands above their zero points; padding has nothing left."""
    values, kernels = x.astype(np.float64), weight.astype(np.float64)
    if x_zero is not None:
        values -= x_zero
    if weight_zero is not None:
        kernels -= _per_filter(weight_zero, weight.ndim)
    windows = slide(attributes, x.shape[2:], weight.shape[2:])
    return convolve(values, kernels, windows, attributes.get("group", 1))


def _per_filter(values: Array, rank: int) -> Array:
    """Return values along the first of so many axes: one for each filter, or one for all."""
    return values if values.ndim == 0 else values.reshape(-1, *[1] * (rank - 1))


def _int32(total: Array) -> Array:
    return total.astype(np.int64).astype(np.int32)
