"""Statistics of timed rounds. The unit is the round, not the run; and the process, where there are several.

Runs of one burst share the same disturbances, and rounds of one process its luck with memory and threads, so that
intervals over runs would be far too narrow, and those over rounds somewhat too narrow. Contenders take turns within
each round, so their ratio is taken per round.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

RESAMPLES = 4000
HALF_WIDTH: Final = 0.03
"""How far the interval of a ratio may reach to each side, on average, to decide anything."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An estimate and the bounds of its 95 % interval."""

    value: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Latency of one contender.

    Attributes:
        p50_us: Median over rounds of each round's median, in microseconds, with its interval; see `over_rounds`.
        p90_us: 90th percentile of all runs; `p99_us`, `mean_us` and `min_us` are also over all runs.
        n: Number of runs.
    """

    p50_us: Interval
    p90_us: float
    p99_us: float
    mean_us: float
    min_us: float
    n: int


def median_interval(values: Sequence[float], seed: int = 0) -> Interval:
    """Compute the median with its percentile bootstrap interval.

    Args:
        values: One value per round, at least one.
        seed: Seed of the resampling, so that a report can be reproduced from its samples.

    Examples:
        >>> median_interval([2.0, 2.0, 2.0])
        Interval(value=2.0, low=2.0, high=2.0)
    """
    data = np.asarray(values, dtype=np.float64)
    picks = np.random.default_rng(seed).integers(0, data.size, (RESAMPLES, data.size))
    low, high = np.percentile(np.median(data[picks], axis=1), [2.5, 97.5])
    return Interval(value=float(np.median(data)), low=float(low), high=float(high))


def latency(rounds: Sequence[Sequence[float]], process_rounds: int | None = None) -> Latency:
    """Summarise one contender.

    Args:
        rounds: Run times in microseconds, one sequence for each round.
        process_rounds: Rounds after which it was started anew; None if it never was.
    """
    runs = np.concatenate([np.asarray(samples, dtype=np.float64) for samples in rounds])
    return Latency(
        p50_us=over_rounds([float(np.median(samples)) for samples in rounds], process_rounds),
        p90_us=float(np.percentile(runs, 90)),
        p99_us=float(np.percentile(runs, 99)),
        mean_us=float(runs.mean()),
        min_us=float(runs.min()),
        n=int(runs.size),
    )


def paired_ratio(
    numerator: Sequence[Sequence[float]], base: Sequence[Sequence[float]], process_rounds: int | None = None
) -> Interval:
    """Compute the ratio of two contenders from the ratios of their medians in each round; see `over_rounds`.

    Args:
        numerator: Run times of one contender, one sequence for each round.
        base: Run times of the other in the same rounds.
        process_rounds: Rounds after which both were started anew; None if they never were.

    Examples:
        >>> paired_ratio([[3.0], [2.0], [2.0], [2.0]], [[1.0], [1.0], [2.0], [2.0]])
        Interval(value=1.5, low=1.0, high=3.0)
        >>> ratio = paired_ratio([[4.0], [4.0], [1.0], [1.0]], [[1.0]] * 4, process_rounds=2)
        >>> round(ratio.value, 6), ratio.low < 0.01, ratio.high > 100
        (2.0, True, True)
    """
    ratios = [float(np.median(a) / np.median(b)) for a, b in zip(numerator, base, strict=True)]
    return over_rounds(ratios, process_rounds)


def over_rounds(values: Sequence[float], process_rounds: int | None) -> Interval:
    """Summarise what was found in each round: by the median, and its bootstrap interval.

    Of several processes it is the geometric mean over processes of their medians, and the interval is Student's over
    processes (Georges, Buytaert and Eeckhout, Statistically rigorous Java performance evaluation, OOPSLA 2007, with
    processes for virtual machines).

    Args:
        values: One positive value for each round.
        process_rounds: Rounds of each process; None if there is one.
    """
    if process_rounds is None or len(values) <= process_rounds:
        return median_interval(values)
    starts = range(0, len(values), process_rounds)
    return mean_interval([float(np.median(values[start : start + process_rounds])) for start in starts])


def mean_interval(values: Sequence[float]) -> Interval:
    """Compute the geometric mean with Student's interval of the logarithms.

    Args:
        values: One for each process, at least two, all positive.

    Examples:
        >>> interval = mean_interval([1.0, 1.02])
        >>> round(interval.value, 4), interval.low < 0.9, interval.high > 1.1
        (1.01, True, True)
    """
    from scipy.stats import t as student  # an optional dependency, that races on GPUs do without

    logarithms = np.log(np.asarray(values, dtype=np.float64))
    middle, error = logarithms.mean(), logarithms.std(ddof=1) / math.sqrt(logarithms.size)
    reach = error * student.ppf(0.975, logarithms.size - 1)
    low, value, high = np.exp([middle - reach, middle, middle + reach])
    return Interval(value=float(value), low=float(low), high=float(high))


def decides(low: float, high: float, half_width: float = HALF_WIDTH) -> bool:
    """Return whether the interval of a ratio is narrow enough to decide anything.

    Examples:
        >>> decides(0.99, 1.02), decides(0.9, 1.0)
        (True, False)
    """
    return high - low <= 2 * half_width


def geometric_mean(ratios: Sequence[Sequence[float]], seed: int = 0) -> Interval:
    """Compute the geometric mean over models of each one's median ratio over rounds, with its bootstrap interval.

    The rounds of each model are resampled; the set of models is fixed.

    Args:
        ratios: For each model one positive ratio per round; at least one model.
        seed: Seed of the resampling.

    Examples:
        >>> round(geometric_mean([[2.0, 2.0], [8.0, 8.0, 8.0]]).value, 6)
        4.0
    """
    generator = np.random.default_rng(seed)
    logarithms = np.zeros(RESAMPLES)
    value = 0.0
    for rounds in ratios:
        data = np.log(np.asarray(rounds, dtype=np.float64))
        picks = generator.integers(0, data.size, (RESAMPLES, data.size))
        logarithms += np.median(data[picks], axis=1) / len(ratios)
        value += float(np.median(data)) / len(ratios)
    low, high = np.percentile(logarithms, [2.5, 97.5])
    return Interval(value=math.exp(value), low=math.exp(low), high=math.exp(high))


def disagreement(expected: Mapping[str, Any], got: Mapping[str, Any]) -> float:
    """Return the largest error over the outputs; `inf` if they cannot be compared.

    The error is the largest difference relative to the largest expected value for floating-point outputs, and the
    fraction of elements that differ for others (classes, indices).

    Examples:
        >>> disagreement({"y": np.array([10.0, 0.0])}, {"y": np.array([10.0, 0.1])})
        0.01
    """
    if expected.keys() != got.keys():
        return float("inf")
    return max(_apart(np.asarray(expected[name]), np.asarray(got[name])) for name in expected)


def _apart(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> float:
    if a.shape != b.shape:
        return float("inf")
    if not a.size:
        return 0.0
    if a.dtype.kind != "f":
        return float(np.mean(a != b))
    difference = np.abs(a.astype(np.float64) - b.astype(np.float64)).max()
    scale = np.abs(a.astype(np.float64)).max()
    error = float(difference / scale) if scale else float(difference)
    return error if np.isfinite(error) else float("inf")
