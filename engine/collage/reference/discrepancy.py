"""Measure a tensor's deviation from its expected value, relative to its own scale."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

_BLOCK = 1 << 16
"""Elements compared at a time: half a megabyte of doubles, which fits in a second-level cache."""

_TINY = 1e-30
"""Scale given to an expected tensor that is zero everywhere: any difference then counts as large."""


@dataclasses.dataclass(frozen=True, slots=True)
class Discrepancy:
    """The outcome of comparing two tensors.

    Attributes:
        error: Largest absolute difference divided by the largest expected magnitude; 0.0 if equal; infinite if
            undefined (another shape or type, a NaN or infinity in only one of them). For integers, booleans and
            strings: the fraction of elements that differ.
        reason: Why the error is infinite; empty otherwise.
        mismatched: Number of elements that differ.
        total: Number of elements.
        rms: For floating point: root mean square difference divided by the largest expected magnitude.
    """

    error: float
    reason: str
    mismatched: int
    total: int
    rms: float = 0.0

    @property
    def mismatched_fraction(self) -> float:
        """Share of elements that differ."""
        return self.mismatched / self.total if self.total else 0.0


def relative_error(actual: Any, expected: Any) -> float:
    """Return `compare(actual, expected).error`.

    Examples:
        >>> relative_error(np.float32([1.0, 100.5]), np.float32([1.0, 100.0]))
        0.005
    """
    return compare(actual, expected).error


def compare(actual: Any, expected: Any) -> Discrepancy:
    """Compare a tensor, or a sequence of tensors, with what it should be.

    Floating point is judged relative to the scale of the whole expected tensor, not element by element: an
    element near zero is a difference of larger numbers, and its own relative error says nothing.

    Integers, booleans and strings are not numbers with an error: the index an ArgMax returns, or the label of a
    pixel, is right or wrong however near the other index is. Two correct implementations do disagree where two
    scores tie within rounding, so such a tensor is judged by the fraction of elements that differ; a tolerance
    of 1e-3 lets near-ties pass and still sees a permuted channel or a lost bias.
    """
    if actual is None or expected is None:
        same = actual is expected
        return Discrepancy(0.0 if same else np.inf, "" if same else "one is absent", 0, 0)
    if isinstance(expected, (list, tuple)):
        return _compare_sequences(actual, expected)
    actual, expected = np.asarray(actual), np.asarray(expected)
    total = expected.size
    if actual.shape != expected.shape:
        return Discrepancy(np.inf, f"shape is {actual.shape} instead of {expected.shape}", total, total)
    if actual.dtype != expected.dtype and not _both_strings(actual, expected):
        return Discrepancy(np.inf, f"type is {actual.dtype} instead of {expected.dtype}", total, total)
    if not is_floating(expected):
        mismatched = int(np.count_nonzero(actual != expected))
        return Discrepancy(mismatched / total if total else 0.0, "", mismatched, total)
    return _compare_floats(actual, expected)


def is_floating(array: np.ndarray[Any, Any]) -> bool:
    """Return whether an array holds real or complex numbers, including ml_dtypes' types.

    Examples:
        >>> is_floating(np.zeros(2, np.float16)), is_floating(np.zeros(2, np.int8))
        (True, False)
    """
    if array.dtype.kind in "fc":
        return True
    # ml_dtypes register their types with kind 'V'; only the floating ones know infinity or NaN
    return array.dtype.kind == "V" and "float" in array.dtype.name


def _both_strings(first: np.ndarray[Any, Any], second: np.ndarray[Any, Any]) -> bool:
    return first.dtype.kind in "OUS" and second.dtype.kind in "OUS"


def _compare_sequences(actual: Any, expected: Any) -> Discrepancy:
    if not isinstance(actual, (list, tuple)) or len(actual) != len(expected):
        return Discrepancy(np.inf, "it is not a sequence of the same length", 1, 1)
    parts = [compare(a, e) for a, e in zip(actual, expected, strict=True)]
    worst = max(parts, key=lambda part: part.error, default=Discrepancy(0.0, "", 0, 0))
    return Discrepancy(
        worst.error,
        worst.reason,
        sum(part.mismatched for part in parts),
        sum(part.total for part in parts),
    )


def _compare_floats(actual: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> Discrepancy:
    """Compare floating-point arrays block by block.

    Whole tensors in double precision would not fit the caches, nor always the memory.
    """
    total = expected.size
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    flat_actual, flat_expected = actual.reshape(-1), expected.reshape(-1)
    largest = scale = squares = 0.0
    mismatched = lost = 0
    for start in range(0, total, _BLOCK):
        a = flat_actual[start : start + _BLOCK].astype(wide)
        e = flat_expected[start : start + _BLOCK].astype(wide)
        odd = ~(np.isfinite(a) & np.isfinite(e))
        if odd.any():
            lost += int(np.count_nonzero(odd & ~((a == e) | (np.isnan(a) & np.isnan(e)))))
            a[odd] = e[odd] = 0.0
        difference = np.abs(a - e)
        largest = max(largest, float(difference.max(initial=0.0)))
        squares += float(np.square(difference).sum())
        scale = max(scale, float(np.abs(e).max(initial=0.0)))
        mismatched += int(np.count_nonzero(difference))
    if lost:
        return Discrepancy(np.inf, f"{lost} of {total} are NaN or infinite in one only", lost, total)
    if largest == 0.0:
        return Discrepancy(0.0, "", mismatched, total)
    scale = max(scale, _TINY)
    return Discrepancy(largest / scale, "", mismatched, total, math.sqrt(squares / total) / scale)
