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


@given(shapes, st.data())
def test_a_reshape_moves_nothing_where_numpy_says_so(shape: tuple[int, ...], data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(shape))))
    repeated = [data.draw(st.booleans()) for _ in shape]
    array = np.zeros([1 if each else extent for each, extent in zip(repeated, shape, strict=True)], np.int8)
    view = np.broadcast_to(array, shape).transpose(order)
    held = Strided(view.shape, view.strides)
    new = data.draw(
        st.permutations([*view.shape, 1]) | st.just([int(np.prod(shape))]) | st.just([*view.shape[:-2], -1])
    )
    new = list(np.zeros(shape, np.int8).reshape(new).shape)

    try:
        expected = view.view()
        expected.shape = tuple(new)  # an error where it would have to copy
    except AttributeError:
        assert held.reshaped(new) is None
        return
    found = held.reshaped(new)

    assert found is not None
    assert found.shape == expected.shape
    # the stride along an axis of one element means nothing
    pairs = zip(found.strides, expected.strides, expected.shape, strict=True)
    assert all(mine == numpys for mine, numpys, extent in pairs if extent > 1)
