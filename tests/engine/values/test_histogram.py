"""Counts of elements, against NumPy's histogram and whatever may be in a tensor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from collage.values import histogram
from collage.values.histogram import Histogram, count_elements

BINS = 16
finite = st.floats(-8.0, 8.0, width=32)
tensors = arrays.arrays(np.float32, st.integers(0, 60), elements=finite)


@given(tensors)
def test_every_element_is_counted_where_numpy_counts_it(values: np.ndarray[Any, Any]) -> None:
    found = Histogram.of_counts(8.0, count_elements(values, 8.0, BINS))

    # eighths of a power of two: edges are exact, so both round alike
    wanted, _ = np.histogram(values[values != 0], BINS, (-8.0, 8.0))
    assert found.counts.tolist() == wanted.tolist()
    assert found.zeros == np.count_nonzero(values == 0)
    assert (found.half, found.width) == (8, 1.0)


@given(tensors, st.integers(1, 7))
def test_counts_of_blocks_add_up(values: np.ndarray[Any, Any], block: int) -> None:
    whole = count_elements(values, 8.0, BINS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(histogram, "_BLOCK", block)

        assert count_elements(values, 8.0, BINS).tolist() == whole.tolist()


def test_what_is_beyond_is_in_the_outermost_bins_and_what_is_not_finite_in_none() -> None:
    values = np.array([[-9.0, 9.0], [np.nan, np.inf], [-np.inf, -0.0]], np.float32)

    counts = count_elements(values, 8.0, BINS)

    assert counts.tolist() == [1, 1, *[0] * (BINS - 2), 1]


@pytest.mark.parametrize("largest", [float(np.finfo(np.float32).smallest_subnormal), float(np.finfo(np.float32).max)])
def test_the_smallest_and_the_largest_magnitude_have_bins(largest: float) -> None:
    counts = count_elements(np.array([-largest, largest, largest], np.float32), largest, BINS)

    assert counts.tolist() == [0, 1, *[0] * (BINS - 2), 2]
