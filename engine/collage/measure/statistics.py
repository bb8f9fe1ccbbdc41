"""Compute statistics of samples: medians, confidence intervals, and the ratio of two contenders."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence

import numpy as np


@dataclasses.dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its confidence interval.

    Attributes:
        value: The estimate.
        low: Lower end.
        high: Upper end.
    """

    value: float
    low: float
    high: float


def median_interval(samples: Sequence[float], confidence: float = 0.95) -> Interval:
    """Compute the median of samples with its exact, distribution-free confidence interval.

    The interval lies between two order statistics: the number of samples below the true median is binomial with
    p = 1/2. With fewer than six samples no such interval reaches 95 %; then it is the whole range.

    Raises:
        ValueError: If there are no samples.

    Examples:
        >>> median_interval([5.0, 1.0, 4.0, 2.0, 3.0, 6.0, 7.0, 8.0])
        Interval(value=4.5, low=1.0, high=8.0)
    """
    ordered = sorted(samples)
    if not ordered:
        raise ValueError("a median needs at least one sample")
    count = len(ordered)
    below, tail = 0, 0.0  # the interval runs from the (below+1)-th smallest to the (below+1)-th largest
    for rank in range((count - 1) // 2):
        tail += math.exp(_log_binomial(count, rank) - count * math.log(2))
        if 2 * tail > 1 - confidence:
            break
        below = rank + 1
    below = max(0, below - 1) if below else 0
    return Interval(statistics.median(ordered), ordered[below], ordered[count - 1 - below])


def ratio_interval(
    ours: Sequence[Sequence[float]],
    theirs: Sequence[Sequence[float]],
    *,
    seed: int,
    confidence: float = 0.95,
    resamples: int = 2000,
    percent: float = 50.0,
) -> Interval:
    """Compute the ratio of two contenders' medians, or other percentiles, paired by round.

    Both contenders run in every round within seconds of each other, so temporary slowdowns of the machine cancel
    within a round: the estimate is the median over rounds of (median of ours / median of theirs). The bootstrap
    resamples rounds, and samples within each, because both vary.

    Args:
        ours: Samples of one contender, by round.
        theirs: Samples of the other, by round, with the same number of rounds.
        seed: Seed of the resampling; the same samples and seed give the same interval.
        confidence: Confidence level of the interval.
        resamples: Number of resamples.
        percent: Which percentile of a round's samples is compared.

    Raises:
        ValueError: If the numbers of rounds differ or a round has no samples.
    """
    if len(ours) != len(theirs) or not ours or not all(ours) or not all(theirs):
        raise ValueError("both contenders need the same number of rounds, at least one, each with samples")
    random = np.random.default_rng(seed)
    rounds = len(ours)
    ratios = np.empty((rounds, resamples))
    estimates = []
    for index, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        estimates.append(percentile(mine, percent) / percentile(other, percent))
        drawn = [resampled_percentiles(each, random, resamples, percent) for each in (mine, other)]
        ratios[index] = drawn[0] / drawn[1]
    chosen = random.integers(0, rounds, (rounds, resamples))
    medians = np.median(np.take_along_axis(ratios, chosen, axis=0), axis=0)
    tail = (1 - confidence) / 2
    low, high = np.quantile(medians, [tail, 1 - tail])
    return Interval(statistics.median(estimates), float(low), float(high))


def percentile(samples: Sequence[float], percent: float) -> float:
    """Compute a percentile by linear interpolation, as `numpy.percentile` does."""
    if percent == 50.0:
        return float(statistics.median(samples))
    return float(np.percentile(np.asarray(samples, dtype=np.float64), percent))


def resampled_percentiles(
    samples: Sequence[float], random: np.random.Generator, resamples: int, percent: float
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Draw percentiles of resamples with replacement without materialising the resamples; see `resampled_medians`.

    A percentile other than the median is the sample of the nearest rank, without interpolation.

    Args:
        samples: At least one.
        random: Random number generator.
        resamples: Number of percentiles.
        percent: Which percentile.
    """
    if percent == 50.0:
        return resampled_medians(samples, random, resamples)
    ranked = np.sort(np.asarray(samples, dtype=np.float64))
    n = len(ranked)
    rank = max(1, math.ceil(percent / 100 * n))
    drawn = np.minimum((n * random.beta(rank, n + 1 - rank, resamples)).astype(np.int64), n - 1)
    found: np.ndarray[tuple[int], np.dtype[np.float64]] = ranked[drawn]
    return found


def resampled_medians(
    samples: Sequence[float], random: np.random.Generator, resamples: int
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Draw medians of resamples with replacement without materialising the resamples.

    A round of a small model has thousands of samples, so materialised resamples would be large. A resample of n is
    n uniform numbers, each `u` standing for the sorted sample at `floor(n * u)`. This map preserves order, so the
    middle values of the resample are the samples at the middle order statistics of n uniform numbers. Of those, the
    one of rank k is distributed as Beta(k, n + 1 - k), and given it the one below as the largest of k - 1 uniform
    numbers beneath it (H. A. David and H. N. Nagaraja, "Order Statistics", section 2).

    Args:
        samples: At least one.
        random: Random number generator.
        resamples: Number of medians.
    """
    ranked = np.sort(np.asarray(samples, dtype=np.float64))
    n = len(ranked)
    upper = n // 2 + 1
    above = random.beta(upper, n + 1 - upper, resamples)
    below = above if n % 2 else above * random.random(resamples) ** (1 / (upper - 1))
    middle = (np.minimum((n * u).astype(np.int64), n - 1) for u in (below, above))  # n * u may round up to n
    low, high = (ranked[index] for index in middle)
    medians: np.ndarray[tuple[int], np.dtype[np.float64]] = (low + high) / 2
    return medians


def _log_binomial(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
