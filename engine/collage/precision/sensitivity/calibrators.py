"""Ranges of 8-bit integers from extremes and histograms of activations.

A range of all elements has headroom for samples that nobody has seen. A range that leaves out the few largest elements
has smaller steps for all others, which are off by less; those few saturate. How much to leave out is the calibrator's
choice. H. Wu et al. compare the three that users can choose from ("Integer Quantization for Deep Learning Inference:
Principles and Empirical Evaluation", 2020, arXiv:2004.09602).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from collage.values.histogram import Histogram
from collage_core.ir.operators.quantising import Range

Array = np.ndarray[Any, Any]

EXCEEDED: Final = 0.01
"""Share of further samples of which the largest number may be outside the range of all elements, which saturates it.

It is 0.11 for eight samples without headroom.
"""
SHARE: Final = 0.9999
"""Share of the elements that `percentile` keeps, one of those that Wu et al. compare (99.9 % to 99.9999 %)."""
LEVELS: Final = 256
"""Numbers that an 8-bit integer stands for."""
_PERCENTILE_BINS: Final = 1 << 16
"""Bins are 1/32768 of the largest magnitude, so an outlier of a hundred times the rest still leaves them 300 bins."""
_ENTROPY_BINS: Final = 1 << 12
"""2048 for each sign, as Migacz has 2048 of magnitudes: fine enough for 256 levels, coarse enough to hold counts."""
_NEXT_TO_NONE: Final = 1e-4
"""Count of a bin that the quantised distribution lacks, where what saturates lies: its divergence would be infinite."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Calibrator:
    """A way to choose a range by the histogram of an activation.

    Attributes:
        key: Its name and parameters: what is remembered of another is of no use.
        bins: Bins of the histogram.
        choose: Returns the range for a histogram and the range of all elements, which contains it.
    """

    key: str
    bins: int
    choose: Callable[[Histogram, Range], Range]


def headroom(largest: Array) -> Array:
    """Return how far beyond the largest number of all samples that of a further one may lie, up to `EXCEEDED` of them.

    Largest numbers of samples are taken to have a Gumbel distribution, of which the standard deviation is the scale
    times pi / sqrt(6), and which falls off like an exponential one (E. J. Gumbel, "Statistics of Extremes", 1958).
    Without headroom, one further sample in n + 1 exceeds n samples.

    Args:
        largest: Largest number in each sample, by row, of each activation, by column; for least ones, their negatives.

    Returns:
        A number of at least 0 for each activation; 0 for one sample, whose spread is unknown, and for 99 or more.

    Examples:
        >>> headroom(np.array([[2.0, 0.0], [3.0, 0.0], [2.0, 0.0], [3.0, 0.0]])).round(2).tolist()
        [1.35, 0.0]
    """
    samples = len(largest)
    if samples < 2:
        return np.zeros(largest.shape[1:])
    scale = largest.std(axis=0, ddof=1) * math.sqrt(6) / math.pi
    headroom: Array = scale * max(0.0, -math.log(EXCEEDED * (samples + 1)))
    return headroom


def percentile(histogram: Histogram, observed: Range, share: float = SHARE) -> Range:
    """Return the narrowest range around zero that holds a share of the elements, up to one bin at each end.

    It is the range of all elements where fewer than 1 / (1 - share) of them were seen, and where so many are zero that
    a range of nothing else would do.

    Args:
        histogram: The elements.
        observed: Range of all elements.
        share: Share to hold.

    Examples:
        >>> counts = np.array([1, 0, 0, 0, 98, 0, 0, 1])
        >>> percentile(Histogram(largest=4.0, zeros=0, counts=counts), Range(-4.0, 3.9), 0.98)
        Range(low=0.0, high=1.0)
    """
    half, before = histogram.half, _sums(histogram.counts)
    needed = math.ceil(share * (before[-1] + histogram.zeros)) - histogram.zeros
    if needed <= 0:
        return observed
    lows = np.flatnonzero(before[: half + 1] + needed <= before[-1])
    highs = np.maximum(np.searchsorted(before, before[lows] + needed), half)
    narrowest = int(np.argmin(highs - lows))
    return _clamped(histogram, observed, half - int(lows[narrowest]), int(highs[narrowest]) - half)


def entropy(histogram: Histogram, observed: Range) -> Range:
    """Return the range that loses least information: of least divergence between the elements and what they become.

    The divergence is that of Kullback and Leibler. Candidates are thresholds on magnitudes at each edge of a bin, cut
    to the range of all elements. What lies beyond is in the outermost bins of the reference distribution, since it
    saturates, and left out of the quantised one, where the bins of one level share its elements evenly, if they have
    any (S. Migacz, "8-bit Inference with TensorRT", GTC 2017).

    Other than there, levels cover the range that is quantised, which has no negative half after a ReLU. And zeros do
    not count: they are exact in every range, so that none loses anything of them. A threshold is at least an eighth of
    the largest magnitude, or a sixteenth if there are elements of both signs: a level is at least one bin wide.

    Args:
        histogram: The elements.
        observed: Range of all elements.
    """
    half, width = histogram.half, histogram.width
    thresholds = np.arange(1, half + 1)
    lefts = np.minimum(thresholds, math.ceil(-observed.low / width))
    rights = np.minimum(thresholds, math.ceil(observed.high / width))
    enough = lefts + rights >= LEVELS
    if not histogram.counts.any() or not enough.any():
        return observed
    lefts, rights = lefts[enough], rights[enough]
    best = int(np.argmin(_divergences(histogram.counts.astype(np.float64), half - lefts, half + rights)))
    return _clamped(histogram, observed, int(lefts[best]), int(rights[best]))


CALIBRATORS: Final[Mapping[str, Calibrator | None]] = {
    "minmax": None,
    "percentile": Calibrator(key=f"percentile {SHARE} {_PERCENTILE_BINS}", bins=_PERCENTILE_BINS, choose=percentile),
    "entropy": Calibrator(key=f"entropy {LEVELS} {_ENTROPY_BINS}", bins=_ENTROPY_BINS, choose=entropy),
}
"""By the name of the option; None for the range of all elements with headroom, for which no histogram is needed."""


def _sums(counts: Array) -> Array:
    """Return the sum of all counts before each edge of a bin."""
    return np.concatenate([np.zeros(1, counts.dtype), np.cumsum(counts)])


def _clamped(histogram: Histogram, observed: Range, left: int, right: int) -> Range:
    """Return the range of some bins on either side of zero, without what no element reaches."""
    return Range(max(observed.low, -left * histogram.width), min(observed.high, right * histogram.width))


def _divergences(counts: Array, starts: Array, ends: Array) -> Array:
    """Return the divergence of each part of a distribution, quantised, from the whole, saturated.

    With P the elements of a bin of T, and Q those of the quantised distribution of U, it is the sum of
    P / T * log(P / T / (Q / U)). Q is the same for all bins of a level that have elements, so sums over levels do.

    Args:
        counts: The elements of each bin.
        starts: First bin of each part.
        ends: Bin behind each part.
    """
    total = counts.sum()
    logarithms = counts * np.log(np.maximum(counts, 1))
    counted, filled, entropies = (_sums(each) for each in (counts, (counts > 0).astype(np.float64), logarithms))
    edges = starts[:, None] + (ends - starts)[:, None] * np.arange(LEVELS + 1) // LEVELS
    kept, bins = np.diff(counted[edges]), np.diff(filled[edges])
    saturated, own = kept.copy(), entropies[ends] - entropies[starts]
    for level, place, beyond in ((0, starts, counted[starts]), (-1, ends - 1, total - counted[ends])):
        saturated[:, level] += beyond
        bins[:, level] += (counts[place] == 0) & (beyond > 0)
        whole = counts[place] + beyond
        own += whole * np.log(np.maximum(whole, 1)) - logarithms[place]
    each = np.where(bins > 0, np.maximum(kept / np.maximum(bins, 1), _NEXT_TO_NONE), 0.0)
    quantised = (each * bins).sum(axis=1)
    level_logarithms = np.log(each, out=np.zeros_like(each), where=each > 0)
    found = (own - (saturated * level_logarithms).sum(axis=1)) / total + np.log(quantised / total)
    return np.where(kept.any(axis=1), found, math.inf)  # all elements at one end are not the same as none
