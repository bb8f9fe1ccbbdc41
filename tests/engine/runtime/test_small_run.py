from __future__ import annotations

import threading
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from collage.runtime.calling.small_run import SmallRun
from collage.runtime.session import Session
from tests.engine.runtime.mocks import ExecutingMock, partition

Parse = Callable[[str], ir.Model]

X = np.arange(6, dtype=np.float32).reshape(2, 3)
N = np.array([1, 2])
TWO = "g (float[2,3] x, int64[2] n) => (float[2,3] y, int64[2] m, float[2,3] x) { y = Neg(x) m = Neg(n) }"


@pytest.mark.parametrize("x", [X, np.asfortranarray(X), X.repeat(2, 1)[:, ::2], np.broadcast_to(X[:1], (2, 3))])
def test_results_are_copies_in_the_order_of_the_model(parsed: Parse, x: np.ndarray[Any, Any]) -> None:
    session = Session(ExecutingMock().build(partition(parsed(TWO))))

    first = session.run(None, {"n": N, "x": x})
    session.run(None, {"n": N + 1, "x": x + 1})

    for result, expected in zip(first, (-x, -N, x), strict=True):
        np.testing.assert_array_equal(result, expected)
        assert result.dtype == expected.dtype
        result[...] = 0  # it is the caller's
    np.testing.assert_array_equal(session.run(None, {"n": N, "x": x})[0], -x)


@pytest.mark.parametrize(
    "feeds",
    [
        {"x": X},
        {"x": X, "n": N, "k": N},
        {"x": X, "k": N},
        {"x": X[:1], "n": N},
        {"x": X, "n": N.astype(np.int32)},
        {"x": X.tolist(), "n": N},
        MappingProxyType({"x": X, "n": N}),
    ],
)
def test_all_but_arrays_that_fit_are_left_to_the_general_way(parsed: Parse, feeds: Any) -> None:
    run = ExecutingMock().build(partition(parsed(TWO))).bind()
    small = SmallRun(run, threading.Lock())

    assert small(feeds) is None
    assert small({"x": X, "n": N}) is not None


@pytest.mark.parametrize(
    ("model", "serves"),
    [
        (TWO, True),
        ("g (string[2] s) => (string[2] t) { t = Identity(s) }", False),
        ("g (float[N] x) => (float[N] y) { y = Neg(x) }", False),
    ],
)
def test_it_serves_tensors_of_fixed_sizes(parsed: Parse, model: str, serves: bool) -> None:
    assert SmallRun.serves(ExecutingMock().build(partition(parsed(model))).bind()) is serves
