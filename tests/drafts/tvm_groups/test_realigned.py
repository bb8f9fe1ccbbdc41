"""Places that start where a library wants them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir
import pytest

from collage_core.contract import ALIGNMENT_BYTES, Buffer, TensorSpec, ValueKind
from tests.drafts.tvm_groups.realigned import Realigned, aligned

SPEC = TensorSpec(name="x", dtype=onnx_ir.DataType.FLOAT, shape=(2, 3))


def placed(offset: int) -> Buffer:
    """A buffer so many bytes after an aligned address."""
    raw = np.zeros(SPEC.nbytes + 2 * ALIGNMENT_BYTES, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT_BYTES + offset
    return Buffer(SPEC, raw[start : start + SPEC.nbytes].view(np.float32).reshape(2, 3))


def test_aligned_buffers_are_used_as_they_are() -> None:
    x, y = placed(0), placed(0)

    places = Realigned.of([x], [y])

    def call() -> None:
        pass

    assert places.inputs[0] is x
    assert places.outputs[0] is y
    assert places.around(call) is call


@pytest.mark.guards(
    "a kernel wants more alignment than a caller's array has",
    "the conformance kit binds such arrays; `realigned.py` of a draft copies for libraries that need it",
    area="toolchains",
)
def test_other_buffers_are_copied_before_and_after_each_call() -> None:
    x, y = placed(4), placed(12)
    places = Realigned.of([x], [y])
    [inside], [outside] = places.inputs, places.outputs

    call = places.around(lambda: np.multiply(inside.array, 2, out=outside.array))

    assert inside.pointer % ALIGNMENT_BYTES == outside.pointer % ALIGNMENT_BYTES == 0
    for value in (3.0, 5.0):
        x.array[...] = value
        call()
        np.testing.assert_array_equal(y.array, np.full((2, 3), 2 * value, np.float32))


def test_a_weight_is_copied_once_if_it_has_to_be() -> None:
    odd = placed(4)
    odd.array[...] = 7

    made = aligned(odd)

    assert made.pointer % ALIGNMENT_BYTES == 0
    np.testing.assert_array_equal(made.array, odd.array)
    assert aligned(made) is made


@pytest.mark.parametrize("value", [None, ["a", "b"]])
def test_what_is_no_tensor_passes_through(value: Any) -> None:
    buffer = Buffer(TensorSpec(name="s", kind=ValueKind.FOREIGN, dtype=None, shape=None))
    buffer.put(value)

    assert aligned(buffer) is buffer
