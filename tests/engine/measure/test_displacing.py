"""What other kernels of a plan do to a processor, done between two samples."""

from __future__ import annotations

import threading
import tracemalloc

import numpy as np
import onnx_ir
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from collage.measure.clocks.displacing import Displacement
from collage_core.contract import Buffer, TensorSpec, ValueKind

DTYPES = [onnx_ir.DataType.FLOAT, onnx_ir.DataType.INT64, onnx_ir.DataType.BOOL, onnx_ir.DataType.UINT8]


def buffer_of(array: np.ndarray) -> Buffer:
    dtype = onnx_ir.DataType.from_numpy(array.dtype)
    return Buffer(TensorSpec(name="x", dtype=dtype, shape=array.shape), array)


def buffer_of_text(array: np.ndarray) -> Buffer:
    return Buffer(TensorSpec(name="s", dtype=onnx_ir.DataType.STRING, shape=array.shape), array)


@given(
    data=st.data(),
    dtypes=st.lists(st.sampled_from(DTYPES), max_size=3),
    threads=st.integers(1, 3),
)
def test_inputs_hold_the_same_bits_afterwards(
    data: st.DataObject, dtypes: list[onnx_ir.DataType], threads: int
) -> None:
    shapes = st_numpy.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5)
    arrays = [data.draw(st_numpy.arrays(dtype.numpy(), shapes)) for dtype in dtypes]
    before = [array.tobytes() for array in arrays]

    Displacement(1 << 12, [buffer_of(array) for array in arrays], threads)()

    assert [array.tobytes() for array in arrays] == before


def test_every_thread_writes_its_part_of_an_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the threads of the kernel before did, each into its own cache."""
    array = np.arange(10, dtype=np.uint8)
    writers: dict[int, list[int]] = {}
    original = np.bitwise_or

    def noting(first: np.ndarray, second: np.ndarray, out: np.ndarray) -> np.ndarray:
        writers[threading.get_ident()] = out.tolist()
        return original(first, second, out=out)

    monkeypatch.setattr(np, "bitwise_or", noting)
    Displacement(1 << 12, [buffer_of(array)], 2)()

    assert sorted(writers.values()) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]


def test_values_that_are_no_plain_memory_are_left_alone() -> None:
    """Text is references to objects, and what lies in a foreign value is a caller's."""
    text = buffer_of_text(np.array(["some", "text"], dtype=object))
    foreign = Buffer(TensorSpec(name="s", kind=ValueKind.FOREIGN, dtype=None, shape=None))
    theirs = np.ones(3)
    theirs.flags.writeable = False
    foreign.put(theirs)

    Displacement(1 << 12, [text, foreign], 2)()

    assert text.value.tolist() == ["some", "text"]
    assert foreign.value is theirs


def test_one_candidate_after_the_other_takes_neither_further_memory_nor_further_threads() -> None:
    nbytes = 1 << 26
    Displacement(nbytes, [], 2)()
    threads = threading.active_count()

    tracemalloc.start()
    try:
        for _ in range(3):
            Displacement(nbytes, [], 2)()
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert most < nbytes // 2
    assert threading.active_count() == threads
