from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collage_core.ir.graph.index_set import IndexSet

indices = st.sets(st.integers(0, 200))


@given(indices, indices)
def test_it_is_the_algebra_of_python_sets(a: set[int], b: set[int]) -> None:
    left, right = IndexSet.of(a), IndexSet.of(b)

    assert list(left) == sorted(a)
    assert set(left | right) == a | b
    assert set(left & right) == a & b
    assert set(left - right) == a - b
    assert set(left ^ right) == a ^ b
    assert left.issubset(right) == a.issubset(b)
    assert left.isdisjoint(right) == a.isdisjoint(b)
    assert len(left) == len(a)
    assert all((index in left) == (index in a) for index in range(-1, 201))


def test_negative_indices_and_infinite_sets_are_refused() -> None:
    with pytest.raises(ValueError, match="negative shift"):
        IndexSet.of([-1])
    with pytest.raises(ValueError, match="finite"):
        IndexSet(-1)


def test_an_empty_set_has_no_lowest_index() -> None:
    assert IndexSet.of([7, 3]).lowest == 3
    with pytest.raises(ValueError, match="empty"):
        _ = IndexSet().lowest
