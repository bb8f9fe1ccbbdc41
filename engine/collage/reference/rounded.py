"""Compare tensors whose values depend on quantisation rounding."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from collage.reference.discrepancy import Discrepancy, is_floating

_PER_ROUNDING = 0.1
"""Root mean square difference allowed between two correct computations, in quanta per consecutive rounding."""

_MOST = 3.0
"""Most allowed quanta, whatever the number of roundings: the distance of quantised values saturates there.

Observed for ONNX Runtime 1.31 and OpenVINO 2026.4 against the reference, on the SqueezeNet, Inception v1 and
MobileNetV2 of the suite quantised with a scale per channel: one operator alone 0.004 quanta (one element of
100,000 is off by one), behind 5 roundings 0.04, 10 roundings 0.15, 20 roundings 0.6, 60 roundings 2; in one
region of OpenVINO 1.1 behind 16.
"""

_ELEMENTS = 2.0
"""Elements that may be a quantum off in any tensor, for small tensors such as the scores of a classifier."""

_OF_SCALE = 1 / 64
"""Assumed quantum of a floating-point tensor, relative to its largest magnitude: half of the 8-bit range used."""

_LABELS = 0.01
_MOST_LABELS = 0.3
"""Largest share of other values behind roundings, such as the index of the largest score, that may differ."""

_NARROW_BITS = 16


def rounded_problem(
    found: Discrepancy,
    actual: Any,
    expected: Any,
    *,
    roundings: int,
    relative: float = 0.0,
    mismatched: float = 0.0,
) -> str:
    """Return what is wrong with a tensor computed after a QuantizeLinear; empty if nothing is.

    Two correct kernels accumulate in different orders, so where a number lies halfway between two quanta one rounds
    up and the other down; after further operators such an element moves others across a rounding boundary, and so
    on. The check is therefore on the error of the tensor as a whole, in quanta: a wrong zero point is one, rounding
    down instead of to nearest 0.7, and a wrong scale, weight or bias several.

    Args:
        found: Difference between the tensor and its expected value, by `discrepancy_of`.
        actual: The tensor computed.
        expected: The expected value.
        roundings: Number of consecutive roundings before the tensor.
        relative: Error of numbers, relative to their scale, that is allowed in any case.
        mismatched: Share of differing elements that is allowed in any case.
    """
    if found.reason:
        return found.reason
    if isinstance(expected, list | tuple):
        return f"error {found.error:.3g}" if found.error > max(relative, mismatched) else ""
    right = np.asarray(expected)
    if is_floating(right):
        if found.error <= relative:
            return ""
        coarse = float(ml_dtypes.finfo(right.dtype).eps) if right.dtype.itemsize == 1 else _OF_SCALE
        apart = found.rms / coarse
    elif is_narrow(right):
        if found.mismatched_fraction <= mismatched:
            return ""
        apart = float(np.sqrt(np.mean(np.square(np.asarray(actual).astype(np.float64) - right.astype(np.float64)))))
    else:
        allowed = max(mismatched, min(_LABELS * roundings, _MOST_LABELS))
        differ = f"{found.mismatched} of {found.total} elements differ behind {roundings} roundings"
        return differ if found.mismatched_fraction > allowed else ""
    most = min(_PER_ROUNDING * roundings, _MOST)
    if apart**2 * right.size <= most**2 * right.size + _ELEMENTS:
        return ""
    return f"it is {apart:.3g} quanta off, allowed behind {roundings} roundings {most:.3g}"


def is_narrow(array: np.ndarray[Any, Any]) -> bool:
    """Return whether an array holds integers of at most 16 bits, including ml_dtypes' types.

    Examples:
        >>> is_narrow(np.zeros(2, np.uint8)), is_narrow(np.zeros(2, np.int64)), is_narrow(np.zeros(2, bool))
        (True, False, False)
    """
    name = array.dtype.name.removeprefix("u")
    return name.startswith("int") and name[3:].isdigit() and int(name[3:]) <= _NARROW_BITS
