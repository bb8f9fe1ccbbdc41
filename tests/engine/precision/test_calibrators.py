"""Ranges that calibrators choose, against slow oracles over the elements themselves and ONNX Runtime's calibrator."""

from __future__ import annotations

import contextlib
import io
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collage.options import RANGES
from collage.precision.sensitivity.calibrators import (
    CALIBRATORS,
    EXCEEDED,
    LEVELS,
    SHARE,
    entropy,
    headroom,
    percentile,
)
from collage.values.histogram import Histogram, count_elements
from collage_core.ir.operators.quantising import Range

Array = np.ndarray[Any, Any]

BINS = 1024
"""Fewer than in use, for oracles that loop over them."""
DRAWS: dict[str, Callable[[np.random.Generator, int], Array]] = {
    "normal": lambda rng, count: rng.normal(size=count),
    "laplace": lambda rng, count: rng.laplace(size=count),
    "uniform": lambda rng, count: rng.uniform(-1, 1, size=count),
    "heavy tails": lambda rng, count: rng.standard_t(3, size=count),
    "skew": lambda rng, count: rng.normal(1.0, 0.7, size=count),
    "after a ReLU": lambda rng, count: np.maximum(rng.normal(size=count), 0),
    "negative": lambda rng, count: -rng.exponential(size=count),
}
OUTLIERS: dict[str, Sequence[float]] = {"none": (), "one": (40.0,), "both signs": (30.0, -25.0, -25.5)}


@pytest.mark.parametrize("kind", ["normal", "laplace", "skew", "after a ReLU"])
@pytest.mark.parametrize("samples", [8, 20])
def test_about_one_further_sample_in_a_hundred_exceeds_the_headroom(kind: str, samples: int) -> None:
    """The largest of many such numbers has nearly a Gumbel distribution; 5,000 activations are looked at."""
    rng, count = np.random.default_rng(samples), 5_000
    largest = np.stack([DRAWS[kind](rng, 200 * count).reshape(count, 200).max(axis=1) for _ in range(samples)])
    further = DRAWS[kind](rng, 200 * count).reshape(count, 200).max(axis=1)

    without = np.mean(further > largest.max(axis=0))
    found = np.mean(further > largest.max(axis=0) + headroom(largest))

    assert without == pytest.approx(1 / (samples + 1), rel=0.2)
    assert EXCEEDED / 3 < found < 3 * EXCEEDED


def test_there_is_no_headroom_of_one_sample_or_beside_many() -> None:
    rng = np.random.default_rng(0)

    assert not headroom(rng.normal(size=(1, 3))).any()
    assert not headroom(rng.normal(size=(99, 3))).any()
    assert headroom(rng.normal(size=(98, 3))).all()


def test_what_all_samples_have_alike_has_no_headroom() -> None:
    assert not headroom(np.tile([0.0, 6.0], (8, 1))).any()  # a ReLU, a Clip


def elements(kind: str, outliers: str, seed: int, count: int) -> Array:
    drawn = DRAWS[kind](np.random.default_rng(seed), count)
    return np.concatenate([drawn, OUTLIERS[outliers]]).astype(np.float32)


def observed(values: Array) -> Range:
    return Range.around(float(values.min()), float(values.max()))


def counted(values: Array, bins: int) -> Histogram:
    largest = float(np.abs(values).max())
    # in two parts, as two samples are
    first, second = np.split(values, [len(values) // 2])
    counts = count_elements(first, largest, bins) + count_elements(second, largest, bins)
    return Histogram.of_counts(largest, counts)


drawn = st.builds(elements, st.sampled_from([*DRAWS]), st.sampled_from([*OUTLIERS]), st.integers(0, 99), st.just(3000))


def narrowest(values: Array, share: float) -> float:
    """Width of the narrowest range around zero that holds a share of the elements: each least element is tried."""
    ordered = np.sort(values.astype(np.float64))
    needed = math.ceil(share * len(ordered))
    zero = int(np.searchsorted(ordered, 0.0))
    widths = []
    for first in range(zero + 1):  # the last begins with zero, or what follows it
        if first + needed <= len(ordered):
            low = min(0.0, ordered[first]) if first < zero else 0.0
            widths.append(max(0.0, ordered[first + needed - 1]) - low)
    return min(widths)


@given(drawn, st.sampled_from([0.9, 0.99, 0.999, SHARE]))
@settings(max_examples=80, deadline=None)
def test_a_percentile_is_the_narrowest_range_that_holds_the_share(values: Array, share: float) -> None:
    histogram = counted(values, BINS)

    found = percentile(histogram, observed(values), share)

    slack = 1e-9 * histogram.largest
    inside = np.count_nonzero((values >= found.low - slack) & (values <= found.high + slack))
    assert inside >= math.ceil(share * len(values))
    wanted = narrowest(values, share)
    assert wanted - slack <= found.high - found.low <= wanted + 2 * histogram.width + slack


@pytest.mark.parametrize("kind", ["after a ReLU", "negative"])
@pytest.mark.parametrize("outliers", ["none", "one"])
def test_a_percentile_of_one_sign_is_a_quantile(kind: str, outliers: str) -> None:
    values = np.abs(elements(kind, outliers, 0, 100_000))
    histogram = counted(values, BINS)

    found = percentile(histogram, observed(values))

    assert found.low == 0.0
    assert found.high == pytest.approx(np.quantile(values, SHARE), abs=histogram.width)
    assert percentile(counted(-values, BINS), observed(-values)).low == pytest.approx(-found.high, abs=histogram.width)


def test_a_percentile_of_few_elements_or_of_nearly_nothing_but_zeros_is_the_range_of_all() -> None:
    few = np.array([-3.0, *[0.1] * 500, 50.0], np.float32)
    sparse = np.array([*[0.0] * 99_999, 2.0], np.float32)

    assert percentile(counted(few, BINS), observed(few)) == Range(-3.0, 50.0)
    assert percentile(counted(sparse, BINS), observed(sparse)) == Range(0.0, 2.0)


def divergence(counts: Array, start: int, end: int, quantised: Callable[[Array, Array], Array]) -> float:
    """Kullback and Leibler's divergence of a part of a distribution, quantised, bin by bin as Migacz writes it."""
    reference = counts[start:end].astype(float)
    reference[0] += counts[:start].sum()
    reference[-1] += counts[end:].sum()
    some = reference > 0
    # an infinite divergence would forbid a gap between the elements and the outliers
    other = np.maximum(quantised(counts[start:end], some), np.where(some, 1e-4, 0.0))
    p, q = reference[some] / reference.sum(), other[some] / other.sum()
    return float(np.sum(p * np.log(p / q))) if counts[start:end].any() else math.inf


def evenly(counts: Array, some: Array) -> Array:
    """The bins of each level share its elements, if they have any; levels are as even as whole bins allow."""
    found = np.zeros(len(counts))
    edges = [len(counts) * level // LEVELS for level in range(LEVELS + 1)]
    for first, last in itertools.pairwise(edges):
        filled = [place for place in range(first, last) if some[place]]
        found[filled] = counts[first:last].sum() / max(len(filled), 1)
    return found


def as_onnx_runtime_does(counts: Array, some: Array) -> Array:
    """Each level has as many bins, rounded down. What is left goes to those of the last. Shares are rounded down.

    Bins without elements have shares as well.
    """
    found = np.zeros(len(counts))
    merged = len(counts) // LEVELS
    for level in range(LEVELS):
        bins = slice(level * merged, (level + 1) * merged)
        held = counts[bins].sum() if level < LEVELS - 1 else counts[level * merged :].sum()
        found[bins] = held // some[bins].sum() if some[bins].any() else 0
    return found


@given(drawn)
@settings(max_examples=6, deadline=None)
def test_entropy_chooses_the_least_divergence(values: Array) -> None:
    histogram, span = counted(values, BINS), observed(values)

    found = entropy(histogram, span)

    divergences: dict[Range, float] = {}
    for threshold in range(1, histogram.half + 1):
        left = min(threshold, math.ceil(-span.low / histogram.width))
        right = min(threshold, math.ceil(span.high / histogram.width))
        if left + right >= LEVELS:
            start, end = histogram.half - left, histogram.half + right
            cut = Range(max(span.low, -left * histogram.width), min(span.high, right * histogram.width))
            divergences[cut] = divergence(histogram.counts, start, end, evenly)
    assert divergences[found] == pytest.approx(min(divergences.values()), abs=1e-9)


@pytest.mark.parametrize(
    "kind", ["normal", "heavy tails", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("laplace", "uniform"))]
)
@pytest.mark.parametrize("outliers", ["none", "both signs"])
def test_onnx_runtimes_entropy_differs_in_how_bins_share_the_elements_of_a_level(kind: str, outliers: str) -> None:
    """With ONNX Runtime's shares, the oracle of the test above says that ONNX Runtime's choice is the best, too.

    Its parts have one bin more above zero than below.
    """
    calibrate = pytest.importorskip("onnxruntime.quantization.calibrate")
    values = elements(kind, outliers, 0, 20_000)
    collector = calibrate.HistogramCollector("entropy", False, BINS, LEVELS, None, None)
    with contextlib.redirect_stdout(io.StringIO()):
        collector.collect({"x": values})
        low, high, *_ = collector.compute_entropy()["x"]
    counts, edges, *_ = collector.get_histogram_dict()["x"]
    histogram, span = counted(values, BINS), observed(values)
    # it has edges in float32, so an element next to one may be on its other side
    assert np.abs(np.cumsum(histogram.counts - counts)).max() <= 2

    divergences = {}
    for threshold in range(LEVELS // 2, histogram.half + 1):
        start, end = histogram.half - threshold, min(histogram.half + threshold + 1, BINS)
        cut = (max(float(edges[start]), span.low), min(float(edges[end]), span.high))
        divergences[cut] = divergence(counts, start, end, as_onnx_runtime_does)
    assert divergences[float(low), float(high)] == pytest.approx(min(divergences.values()), rel=1e-3)


def test_entropy_cuts_outliers_off_and_keeps_what_has_none() -> None:
    plain, far = elements("uniform", "none", 0, 50_000), elements("uniform", "none", 0, 50_000)
    far[:2] = [6.0, -6.0]
    calibrator = CALIBRATORS["entropy"]
    assert calibrator is not None

    kept = calibrator.choose(counted(plain, calibrator.bins), observed(plain))
    cut = calibrator.choose(counted(far, calibrator.bins), observed(far))

    assert kept == observed(plain)
    assert cut.high == -cut.low == pytest.approx(1.0, abs=0.02)


def test_entropy_of_next_to_nothing_is_the_range_of_all() -> None:
    for values in (np.array([2.0], np.float32), np.array([-1.0, 2.0, 0.0], np.float32)):
        assert entropy(counted(values, BINS), observed(values)) == observed(values)


@pytest.mark.parametrize("name", ["percentile", "entropy"])
@given(values=drawn)
@settings(max_examples=15, deadline=None)
def test_a_range_is_within_that_of_all_elements(name: str, values: Array) -> None:
    calibrator = CALIBRATORS[name]
    assert calibrator is not None

    found, span = calibrator.choose(counted(values, calibrator.bins), observed(values)), observed(values)

    assert span.low <= found.low <= 0 <= found.high <= span.high
    assert found.low < found.high


def test_every_name_of_the_option_has_a_calibrator_and_each_is_remembered_apart() -> None:
    assert tuple(CALIBRATORS) == RANGES
    keys = [name if each is None else each.key for name, each in CALIBRATORS.items()]
    assert len(set(keys)) == len(keys)
