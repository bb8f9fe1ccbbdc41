from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collage_core.ir.graph.masks import iterate_bits, lowest_bit, mask_of, union_of

indices = st.sets(st.integers(0, 200))


@given(indices, indices)
def test_masks_are_sets_of_indices(a: set[int], b: set[int]) -> None:
    assert list(iterate_bits(mask_of(a))) == sorted(a)
    assert union_of([mask_of(a), mask_of(b)]) == mask_of(a | b)
    assert not a or lowest_bit(mask_of(a)) == min(a)


def test_negative_indices_are_refused() -> None:
    with pytest.raises(ValueError, match="negative shift"):
        mask_of([-1])
