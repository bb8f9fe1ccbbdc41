"""A caller's arrays are read and written where they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from collage_core.errors import FeedError
from tests.engine.runtime.mocks import ExecutingMock, partition
from tests.engine.runtime.running import X

Parse = Callable[[str], ir.Model]


def test_bound_arrays_are_read_and_written_in_place(parsed: Parse) -> None:
    model = parsed("g (float[2,3] x) => (float[2,3] y, float[2,3] z) { a = Neg(x) y = Exp(a) z = Abs(a) }")
    executable = ExecutingMock().build(partition(model))
    x, y = X.copy(), np.zeros_like(X)

    bound = executable.bind({"x": x}, {"y": y})
    bound.call()

    assert bound.outputs["y"] is y
    np.testing.assert_array_equal(y, np.exp(-X))
    np.testing.assert_array_equal(bound.outputs["z"], np.abs(X))
    x += 1
    assert bound.run()[0] is y
    np.testing.assert_array_equal(y, np.exp(-X - 1))


def test_bound_runs_share_the_calls_inside(parsed: Parse) -> None:
    model = parsed("g (float[2,3] x) => (float[2,3] y) { a = Neg(x) b = Abs(a) c = Neg(b) y = Exp(c) }")
    executable = ExecutingMock().build(partition(model))

    one, other = executable.bind(), executable.bind()

    same = [a.call is b.call for a, b in zip(one.steps, other.steps, strict=True)]
    assert same == [False, True, True, False]
    assert not np.shares_memory(one.outputs["y"], other.outputs["y"])


@pytest.mark.parametrize(
    ("inputs", "outputs", "reason"),
    [
        ({"nope": X}, {}, "no such input; it has x"),
        ({}, {"nope": X}, "no such output; it has y"),
        ({"x": X.astype(np.float64)}, {}, r"bind an array of float32\[2, 3\].* got float64\[2, 3\]"),
        ({"x": X.T.copy().T}, {}, "not C-contiguous"),
        ({"x": X.tolist()}, {}, "not list"),
        ({}, {"y": np.broadcast_to(np.float32(0), (2, 3))}, "read-only"),
    ],
)
def test_arrays_that_do_not_fit_cannot_be_bound(parsed: Parse, inputs: Any, outputs: Any, reason: str) -> None:
    executable = ExecutingMock().build(partition(parsed("g (float[2,3] x) => (float[2,3] y) { y = Neg(x) }")))

    with pytest.raises(FeedError, match=reason):
        executable.bind(inputs, outputs)


def test_an_output_cannot_be_bound_to_the_memory_of_an_input(parsed: Parse) -> None:
    executable = ExecutingMock().build(partition(parsed("g (float[2,3] x) => (float[2,3] y) { y = Neg(x) }")))
    memory = X.copy()

    with pytest.raises(FeedError, match="shares memory with that of 'x'"):
        executable.bind({"x": memory}, {"y": memory})
