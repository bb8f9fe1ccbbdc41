"""Compare a tensor with what it should be: whether it may be correct, and how large its error is."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from collage.reference.conditioning import Conditioning, conditioning_of

_BLOCK = 1 << 16
"""Elements compared at a time: half a megabyte of doubles, which fits in a second-level cache."""

_TINY = 1e-30
"""Scale given to an expected tensor that is zero everywhere: any difference then counts as large."""

_SMALLEST = 5e-324
"""Least positive tolerance: where none is allowed, any difference is beyond it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Discrepancy:
    """The outcome of comparing two tensors.

    Attributes:
        error: Largest absolute difference relative to the tensor's scale, the 99.9th percentile of the expected
            magnitudes; of sentinels such as masks, relative to themselves. 0.0 if equal, and where the expected value
            is nothing but rounding and the other is within tolerance; infinite if undefined (another shape or type, a
            NaN or infinity in only one of them). For integers, booleans and strings: the fraction of elements that
            differ.
        reason: Why the error is infinite; empty otherwise.
        mismatched: Number of elements that differ.
        total: Number of elements.
        of_elements: For floating point of known conditioning: largest absolute difference relative to the scale, or to
            the expected element where that is larger.
        rms: For floating point: root mean square difference relative to the tensor's scale.
        beyond: Number of elements that no correct computation gives: those that differ, for numbers by more than
            `Conditioning.tolerance` if the conditioning is known; otherwise only those NaN or infinite in one.
        structural: Whether they differ in shape, type or length.
        farthest: The number that is furthest beyond its tolerance: its index, its value and its expected value.
    """

    error: float
    reason: str
    mismatched: int
    total: int
    of_elements: float = 0.0
    rms: float = 0.0
    beyond: int = 0
    structural: bool = False
    farthest: tuple[tuple[int, ...], float, float] | None = None

    @property
    def mismatched_fraction(self) -> float:
        """Share of elements that differ."""
        return self.mismatched / self.total if self.total else 0.0


def relative_error(actual: Any, expected: Any) -> float:
    """Return `discrepancy_of(actual, expected).error`.

    Examples:
        >>> relative_error(np.float32([1.0, 100.5]), np.float32([1.0, 100.0]))
        0.005
    """
    return discrepancy_of(actual, expected).error


def discrepancy_of(actual: Any, expected: Any, conditioning: Conditioning | None = None) -> Discrepancy:
    """Compare a tensor, or a sequence of tensors, with what it should be.

    The error of numbers is relative to the scale of the whole expected tensor: an element near zero is a difference of
    larger numbers, and its own relative error says nothing. Whether an element may be correct follows from its
    conditioning.

    Integers, booleans and strings are right or wrong however near they are.

    Args:
        actual: The tensor computed.
        expected: What it should be.
        conditioning: What rounding does to it; None if that is not known.
    """
    if actual is None or expected is None:
        same = actual is expected
        return Discrepancy(0.0, "", 0, 0) if same else _structural("one is absent", 0)
    if isinstance(expected, (list, tuple)):
        return _compare_sequences(actual, expected)
    actual, expected = np.asarray(actual), np.asarray(expected)
    total = expected.size
    if actual.shape != expected.shape:
        return _structural(f"shape is {actual.shape} instead of {expected.shape}", total)
    if actual.dtype != expected.dtype and not _both_strings(actual, expected):
        return _structural(f"type is {actual.dtype} instead of {expected.dtype}", total)
    if not is_floating(expected):
        mismatched = int(np.count_nonzero(actual != expected))
        return Discrepancy(mismatched / total if total else 0.0, "", mismatched, total, beyond=mismatched)
    return _compare_floats(actual, expected, conditioning)


def _structural(reason: str, total: int) -> Discrepancy:
    return Discrepancy(np.inf, reason, total, total, beyond=max(1, total), structural=True)


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
        return _structural("it is not a sequence of the same length", 1)
    parts = [discrepancy_of(a, e) for a, e in zip(actual, expected, strict=True)]
    worst = max(parts, key=lambda part: part.error, default=Discrepancy(0.0, "", 0, 0))
    return dataclasses.replace(
        worst,
        mismatched=sum(part.mismatched for part in parts),
        total=sum(part.total for part in parts),
        beyond=sum(part.beyond for part in parts),
    )


def _compare_floats(
    actual: np.ndarray[Any, Any], expected: np.ndarray[Any, Any], conditioning: Conditioning | None
) -> Discrepancy:
    """Compare floating-point arrays block by block.

    Whole tensors in double precision would not fit the caches, nor always the memory.
    """
    total = expected.size
    # of floats of eight bits it only says how many choices may fall otherwise
    known = conditioning if conditioning is not None and expected.dtype.itemsize > 1 else conditioning_of(expected)
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    flat_actual, flat_expected = actual.reshape(-1), expected.reshape(-1)
    scale = max(known.scale, _TINY)
    largest = of_sentinels = of_elements = squares = 0.0
    mismatched = lost = beyond = 0
    farthest, furthest = -1, 1.0
    for start in range(0, total, _BLOCK):
        a = flat_actual[start : start + _BLOCK].astype(wide)
        e = flat_expected[start : start + _BLOCK].astype(wide)
        odd = ~(np.isfinite(a) & np.isfinite(e))
        if odd.any():
            lost += int(np.count_nonzero(odd & ~((a == e) | (np.isnan(a) & np.isnan(e)))))
            a[odd] = e[odd] = 0.0
        difference = np.abs(a - e)
        mismatched += int(np.count_nonzero(difference))
        if conditioning is not None:
            suspects = np.flatnonzero(difference > conditioning.least)
            with np.errstate(over="ignore"):
                ratios = difference[suspects] / np.maximum(conditioning.tolerance(e[suspects]), _SMALLEST)
            beyond += int(np.count_nonzero(ratios > 1))
            if suspects.size and ratios.max() > furthest:
                farthest, furthest = start + int(suspects[ratios.argmax()]), float(ratios.max())
        if known.sentinel is not None:
            masks = np.abs(e) >= known.sentinel
            of_sentinels = max(of_sentinels, float((difference[masks] / np.abs(e[masks])).max(initial=0.0)))
            difference[masks] = 0.0
        largest = max(largest, float(difference.max(initial=0.0)))
        if conditioning is not None:
            of_elements = max(of_elements, float((difference / np.maximum(np.abs(e), scale)).max(initial=0.0)))
        squares += float(np.square(difference).sum())
    where = None
    if farthest >= 0:
        index = tuple(map(int, np.unravel_index(farthest, expected.shape)))
        where = (index, float(flat_actual[farthest]), float(flat_expected[farthest]))
    if lost:
        reason = f"{lost} of {total} are NaN or infinite in one only"
        return Discrepancy(np.inf, reason, max(lost, mismatched), total, beyond=lost + beyond, farthest=where)
    if largest == of_sentinels == 0.0 or (conditioning is not None and conditioning.is_noise and not beyond):
        return Discrepancy(0.0, "", mismatched, total)
    return Discrepancy(
        max(largest / scale, of_sentinels),
        "",
        mismatched,
        total,
        of_elements=max(of_elements, of_sentinels),
        rms=math.sqrt(squares / total) / scale,
        beyond=beyond,
        farthest=where,
    )
