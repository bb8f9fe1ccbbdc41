from __future__ import annotations

import collections
import itertools
import statistics
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collage.measure.statistics import median_interval, ratio_interval, resampled_medians, resampled_percentiles


def test_the_interval_of_a_median_is_between_the_tabulated_order_statistics() -> None:
    """Ranks from the usual table of 95 % intervals for the median: n=6: 1 and 6; n=20: 6 and 15; n=50: 18 and 33."""
    for count, low, high in [(6, 1, 6), (20, 6, 15), (50, 18, 33)]:
        interval = median_interval([float(rank) for rank in range(1, count + 1)])
        assert (interval.low, interval.high) == (low, high)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=40))
def test_a_median_lies_in_its_interval(samples: list[float]) -> None:
    interval = median_interval(samples)

    assert min(samples) <= interval.low <= interval.value <= interval.high <= max(samples)


def test_the_interval_covers_the_true_median_as_often_as_it_says() -> None:
    random = np.random.default_rng(0)
    hits = 0
    for _ in range(400):
        interval = median_interval(random.standard_normal(25).tolist())
        hits += interval.low <= 0 <= interval.high
    assert hits >= 0.93 * 400


def _rounds(random: np.random.Generator, scale: float, drift: np.ndarray[Any, Any]) -> list[list[float]]:
    return [(scale * slow * (1 + 0.02 * random.standard_normal(20))).tolist() for slow in drift]


def test_a_slow_minute_cancels_in_the_ratio() -> None:
    random = np.random.default_rng(1)
    drift = np.array([1.0, 1.0, 3.0, 1.2, 2.0, 1.0, 1.0, 1.5, 1.0, 2.5])
    ratio = ratio_interval(_rounds(random, 90.0, drift), _rounds(random, 100.0, drift), seed=0)

    assert 0.88 < ratio.low < 0.9 < ratio.high < 0.92


def test_equal_contenders_are_not_told_apart() -> None:
    random = np.random.default_rng(2)
    drift = np.ones(8)
    ratio = ratio_interval(_rounds(random, 100.0, drift), _rounds(random, 100.0, drift), seed=0)

    assert ratio.low < 1 < ratio.high


def test_the_same_samples_and_seed_give_the_same_interval() -> None:
    ours, theirs = [[1.0, 2.0, 3.0]], [[2.0, 2.5, 4.0]]

    assert ratio_interval(ours, theirs, seed=5) == ratio_interval(ours, theirs, seed=5)


@pytest.mark.parametrize(
    "samples", [[3.0], [1.0, 4.0], [5.0, 1.0, 2.0], [1.0, 1.0, 7.0, 9.0], [8.0, 1.0, 2.0, 4.0, 3.0]]
)
def test_medians_of_resamples_are_as_frequent_as_among_all_resamples(samples: list[float]) -> None:
    every = [statistics.median(each) for each in itertools.product(samples, repeat=len(samples))]
    draws = 100_000

    medians = collections.Counter(resampled_medians(samples, np.random.default_rng(0), draws).tolist())

    expected = {value: count / len(every) for value, count in collections.Counter(every).items()}
    assert medians.keys() <= expected.keys()
    for value, share in expected.items():
        assert abs(medians[value] / draws - share) <= 5 * (share * (1 - share) / draws) ** 0.5


def test_rounds_must_be_paired() -> None:
    with pytest.raises(ValueError, match="same number of rounds"):
        ratio_interval([[1.0]], [[1.0], [2.0]], seed=0)
    with pytest.raises(ValueError, match="at least one sample"):
        median_interval([])


@pytest.mark.parametrize("percent", [10.0, 50.0, 90.0])
def test_drawn_percentiles_are_those_of_resamples(percent: float) -> None:
    """Against resamples that are drawn one by one."""
    random = np.random.default_rng(4)
    samples = list(random.lognormal(3, 0.3, 41))
    drawn = resampled_percentiles(samples, random, 4000, percent)
    rank: Any = "linear" if percent == 50.0 else "inverted_cdf"
    slow = [np.percentile(random.choice(samples, len(samples)), percent, method=rank) for _ in range(4000)]

    for share in (0.05, 0.25, 0.5, 0.75, 0.95):
        assert np.quantile(drawn, share) == pytest.approx(np.quantile(slow, share), rel=0.03)
