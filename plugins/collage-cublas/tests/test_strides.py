"""Strides against NumPy's own."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collage_cublas.strides import Strided

shapes = st.lists(st.integers(2, 4), min_size=1, max_size=4).map(tuple)


@given(shapes, st.data())
def test_views_lie_in_memory_as_numpys_do(shape: tuple[int, ...], data: st.DataObject) -> None:
    array = np.zeros(shape, np.int8)  # a byte each, so that NumPy's strides are ours
    order = data.draw(st.permutations(range(len(shape))))
    view = Strided.row_major(shape)

    assert view.strides == array.strides
    assert view.permuted(order).strides == array.transpose(order).strides
    assert view.broadcast((3, *shape)).strides == np.broadcast_to(array, (3, *shape)).strides
    assert view.with_axis(0).shape == array[np.newaxis].shape


def test_what_does_not_broadcast_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"\[2, 3\] does not broadcast to \[4, 3\]"):
        Strided.row_major((2, 3)).broadcast((4, 3))
