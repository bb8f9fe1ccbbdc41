"""Whether what a kernel gave is what the reference gave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from collage_core.contract import Buffer, TensorSpec, ValueKind
from collage_core.measure.outcomes import Tolerance
from collage_core.reference.compare import compare

_EXACT_KINDS = "iubOSU"
_ALIGNMENT = 64


def aligned_buffer(spec: TensorSpec) -> Buffer:
    """A buffer aligned as the runtime's arena aligns: some kernels are slower on other addresses."""
    if spec.kind is ValueKind.FOREIGN:
        return Buffer(spec)
    raw = np.empty(spec.nbytes + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    return Buffer(spec, raw[start : start + spec.nbytes].view(spec.numpy_dtype).reshape(spec.static_shape))


def spoil(buffer: Buffer, expected: Any) -> None:
    """Fills a planned output with bits that are wrong everywhere, so that an element not written is seen."""
    if buffer.spec.kind is not ValueKind.PLANNED:
        return
    if isinstance(expected, np.ndarray) and expected.dtype == bool and expected.shape == buffer.array.shape:
        np.logical_not(expected, out=buffer.array)
        return
    fill = 0 if buffer.array.dtype == bool else 0xFF  # NaN in every floating-point format, -1 in integers
    buffer.array.reshape(-1).view(np.uint8).fill(fill)
    if isinstance(expected, np.ndarray) and expected.dtype.kind in "iu" and expected.shape == buffer.array.shape:
        np.invert(expected.astype(buffer.array.dtype, copy=False), out=buffer.array)


def judge(outputs: Sequence[Buffer], expected: Sequence[Any], tolerance: Tolerance) -> float | str:
    """Compares a kernel's outputs with what they should be.

    Args:
        outputs: What the kernel wrote.
        expected: What it should have; None where that cannot be said.
        tolerance: How far apart they may be.

    Returns:
        The largest error of floating-point outputs, relative to each one's scale; or what is wrong.
    """
    largest = 0.0
    for buffer, right in zip(outputs, expected, strict=True):
        if right is None:
            continue
        found = compare(buffer.value, right)
        name = buffer.spec.name
        if found.reason:
            return f"output {name!r}: {found.reason}"
        if np.asarray(right).dtype.kind in _EXACT_KINDS if not isinstance(right, (list, tuple)) else False:
            if found.mismatched_fraction > tolerance.mismatched:
                return f"output {name!r}: {found.mismatched} of {found.total} elements differ"
            continue
        if not found.error <= tolerance.relative:
            return f"output {name!r}: error {found.error:.3g} of the tensor's scale, allowed {tolerance.relative:.3g}"
        largest = max(largest, found.error)
    return largest
