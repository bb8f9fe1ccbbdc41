"""Count the elements of tensors in bins of equal width, so that the counts of many tensors can be added up."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

import numpy as np

_BLOCK: Final = 1 << 20
"""Elements that are looked at at a time: each takes 24 bytes of temporary memory."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Histogram:
    """How many elements lie where between minus and plus the largest magnitude.

    Zeros are counted apart. They are exact in every `Range`, and after a ReLU they are most of the elements.

    Attributes:
        largest: Largest magnitude, above zero.
        zeros: Elements that are zero.
        counts: Other elements in each bin, from the least to the largest; an even number, so zero is between two bins.
    """

    largest: float
    zeros: int
    counts: np.ndarray[Any, Any]

    @classmethod
    def of_counts(cls, largest: float, counts: np.ndarray[Any, Any]) -> Histogram:
        """Return the histogram of what `count_elements` counted, or of a sum of such."""
        return cls(largest=largest, zeros=int(counts[0]), counts=counts[1:])

    @property
    def half(self) -> int:
        """Number of bins on each side of zero."""
        return len(self.counts) // 2

    @property
    def width(self) -> float:
        """Width of a bin."""
        return self.largest / self.half


def count_elements(values: np.ndarray[Any, Any], largest: float, bins: int) -> np.ndarray[Any, Any]:
    """Count the elements of a tensor.

    Elements beyond the largest magnitude are in the outermost bins: a second run of a model may round otherwise than
    the one that found the largest. What is not finite is not counted.

    Args:
        values: The tensor.
        largest: Largest magnitude, above zero.
        bins: Number of bins, which is even.

    Returns:
        The number of zeros, and then that of other elements in each bin, as int64.

    Examples:
        >>> count_elements(np.float32([0.0, -1.0, 0.1, 1.0, 1.0]), 1.0, 4)
        array([1, 1, 0, 1, 2])
    """
    half = bins // 2
    per_unit = half / largest
    counts = np.zeros(bins + 1, np.int64)
    flat = values.reshape(-1)
    for first in range(0, flat.size, _BLOCK):
        block = flat[first : first + _BLOCK].astype(np.float64)
        other = block[np.isfinite(block) & (block != 0)]
        counts[0] += np.count_nonzero(block == 0)
        places = np.clip(np.floor(other * per_unit), -half, half - 1).astype(np.int64) + half
        counts[1:] += np.bincount(places, minlength=bins)
    return counts
