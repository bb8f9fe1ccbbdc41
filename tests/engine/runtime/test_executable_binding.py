"""A caller's arrays are read and written where they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from collage_core.errors import FeedError
from collage_core.ir.values.size_range import SizeRange
from collage_core.ir.values.symbolic_sizes import say_sizes
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


@pytest.mark.parametrize(
    ("x", "reason"),
    [
        (X.astype(np.float64), r"bind an array of float32\[\?, 3\], C-contiguous and aligned; got float64\[2, 3\]"),
        (X.T.copy().T, "not C-contiguous"),
        (np.zeros((2, 4), np.float32), r"got float32\[2, 4\]"),
        (np.zeros(3, np.float32), r"got float32\[3\]"),
        (X.tolist(), "not list"),
    ],
)
def test_arrays_of_unknown_size_are_looked_at_too_since_kernels_read_them_at_their_address(
    parsed: Parse, x: Any, reason: str
) -> None:
    model = parsed("g (float[n,3] x) => (float[n,3] y) { y = Neg(x) }")
    say_sizes(model.graph.inputs[0], (SizeRange(1, 40, 8), 3))
    executable = ExecutingMock().build(partition(model)).by_reference()

    with pytest.raises(FeedError, match=reason):
        executable.bind({"x": x})
    for right in (X, np.broadcast_to(X, X.shape)):  # a read-only array is read as well
        np.testing.assert_array_equal(executable.bind({"x": right}).run()[0], -X)


MEMORY = np.zeros(64, np.float32)
"""Room for arrays that share memory, or lie side by side."""


def at(start: int) -> Any:
    return MEMORY[start : start + 6].reshape(2, 3)


@pytest.mark.parametrize(
    ("inputs", "outputs", "reason"),
    [
        ({"x": at(0)}, {"y": at(0)}, "'y': its array shares memory with that of 'x'"),
        ({"x": at(5)}, {"y": at(0)}, "'y': its array shares memory with that of 'x'"),
        ({"x": at(0)}, {"y": at(5)}, "'y': its array shares memory with that of 'x'"),
        ({"x": at(0)}, {"y": at(20), "z": at(23)}, "'z': its array shares memory with that of 'y'"),
        ({"x": MEMORY[:60].reshape(6, 10)[::3, ::4]}, {"y": at(12)}, "'y': its array shares memory with that of 'x'"),
        ({"x": at(6)[::-1]}, {"y": at(0), "z": at(12)}, "not C-contiguous"),
        ({"x": np.broadcast_to(MEMORY[:1], (2, 3))}, {"y": at(1), "z": at(7)}, "not C-contiguous"),
    ],
)
def test_no_output_is_bound_to_memory_of_another_array(parsed: Parse, inputs: Any, outputs: Any, reason: str) -> None:
    text = "g (float[2,3] x) => (float[2,3] y, float[2,3] z) { y = Neg(x) z = Exp(x) }"
    executable = ExecutingMock().build(partition(parsed(text)))

    with pytest.raises(FeedError, match=reason):
        executable.bind(inputs, outputs)


def test_arrays_may_lie_side_by_side(parsed: Parse) -> None:
    text = "g (float[2,3] x, float[2,3] w, float[0] e) => (float[2,3] y, float[0] f) { y = Add(x, w) f = Neg(e) }"
    executable = ExecutingMock().build(partition(parsed(text)))

    run = executable.bind({"x": at(0), "w": at(0), "e": MEMORY[8:8]}, {"y": at(6), "f": MEMORY[3:3]})

    at(0)[:] = X
    run.run()
    np.testing.assert_array_equal(at(6), X + X)
