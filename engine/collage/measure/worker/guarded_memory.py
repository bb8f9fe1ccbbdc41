"""Memory for kernels, with zones around it that nothing may write."""

from __future__ import annotations

from typing import Any

import numpy as np

from collage_core.contract import ALIGNMENT_BYTES, Buffer, TensorSpec, ValueKind

_ZONE_BYTES = ALIGNMENT_BYTES
"""Bytes before and behind a buffer: what a vector of the widest registers writes too much."""
_ZONE = 0xA5


def aligned_buffer(spec: TensorSpec, *, beyond: int = 0) -> Buffer:
    """Return a buffer with the alignment of the runtime's arena, and zones around it.

    Some kernels are slower on other addresses.

    Args:
        spec: Tensor that the buffer holds.
        beyond: Offset of the start from an aligned address, in bytes.
    """
    if spec.kind is ValueKind.FOREIGN:
        return Buffer(spec)
    raw = np.empty(spec.nbytes + ALIGNMENT_BYTES + beyond + 2 * _ZONE_BYTES, np.uint8)
    start = _ZONE_BYTES + -(raw.ctypes.data + _ZONE_BYTES) % ALIGNMENT_BYTES + beyond
    end = start + spec.nbytes
    raw[:start] = _ZONE
    raw[end:] = _ZONE
    return Buffer(spec, raw[start:end].view(spec.numpy_dtype).reshape(spec.static_shape))


def overrun(buffer: Buffer) -> str:
    """Say where something wrote beside a planned buffer of `aligned_buffer`; empty if nothing did."""
    if buffer.spec.kind is not ValueKind.PLANNED:
        return ""
    raw = _owner(buffer.array)
    start = buffer.array.ctypes.data - raw.ctypes.data
    if (raw[:start] != _ZONE).any():
        return "before"
    return "behind" if (raw[start + buffer.spec.nbytes :] != _ZONE).any() else ""


def _owner(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the array that a view is of."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
