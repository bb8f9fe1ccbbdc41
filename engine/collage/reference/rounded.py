"""Whether a tensor is right in which rounding to few bits has a say."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from collage.reference.discrepancy import Discrepancy, is_floating

_PER_ROUNDING = 0.1
"""Quanta, root mean square, that two right computations may be apart for each rounding in a row."""

_MOST = 3.0
"""However many roundings there are: by then the values are as far apart as quantised ones get.

Seen of ONNX Runtime 1.31 and OpenVINO 2026.4 against the reference, on the SqueezeNet, Inception v1 and MobileNetV2 of
the suite quantised with a scale per channel: one operator alone 0.004 quanta (one element of 100,000 is off by one),
behind 5 roundings 0.04, 10 roundings 0.15, 20 roundings 0.6, 60 roundings 2; in one region of OpenVINO 1.1 behind 16.
"""

_ELEMENTS = 2.0
"""Elements that may be a quantum off in any tensor, as in the few scores of a classifier."""

_OF_SCALE = 1 / 64
"""What a quantum is taken to be of a tensor of numbers, as a share of its largest magnitude: half of 8 bits used."""

_LABELS = 0.01
_MOST_LABELS = 0.3
"""Of anything else behind a rounding, such as the index of the largest score: the share that may differ for each."""

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
    """What is wrong with a tensor behind a QuantizeLinear; empty if nothing is.

    Two right kernels add up in different orders, so where a number lies in the middle between two quanta one rounds up
    and the other down; behind further operators such an element moves others over the middle, and so on. So what is
    judged is how far a tensor is off as a whole, in quanta: a wrong zero point is one, rounding down instead of to
    the nearest 0.7, and a wrong scale, weight or bias several.

    Args:
        found: How far it is from what it should be, by `compare`.
        actual: The tensor.
        expected: What it should be.
        roundings: How many roundings in a row it is behind.
        relative: Error of numbers, relative to their scale, that is allowed anyway.
        mismatched: Share of differing elements that is allowed anyway.
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
    """Whether an array holds integers of at most 16 bits, ml_dtypes' included.

    Examples:
        >>> is_narrow(np.zeros(2, np.uint8)), is_narrow(np.zeros(2, np.int64)), is_narrow(np.zeros(2, bool))
        (True, False, False)
    """
    name = array.dtype.name.removeprefix("u")
    return name.startswith("int") and name[3:].isdigit() and int(name[3:]) <= _NARROW_BITS
