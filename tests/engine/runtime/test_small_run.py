from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from collage.runtime.session import Session
from collage_core.errors import FeedError
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
    ("feeds", "problem"),
    [
        ({"x": X}, "no value given"),
        ({"x": X, "n": N, "k": N}, "no such input"),
        ({"x": X, "k": N}, "no such input"),
        ({"x": X[:1], "n": N}, "expected float32"),
        ({"x": X.astype(np.float64), "n": N}, "expected float32"),
        ([X, N], "by its name"),
    ],
)
def test_what_does_not_fit_is_refused_and_the_session_runs_on(parsed: Parse, feeds: Any, problem: str) -> None:
    session = Session(ExecutingMock().build(partition(parsed(TWO))))

    with pytest.raises(FeedError, match=problem):
        session.run(None, feeds)

    np.testing.assert_array_equal(session.run(None, {"x": X, "n": N})[0], -X)


def test_what_is_as_good_as_an_array_is_taken(parsed: Parse) -> None:
    session = Session(ExecutingMock().build(partition(parsed(TWO))))

    results = session.run(None, {"x": X.tolist(), "n": [1, 2]})

    np.testing.assert_array_equal(results[0], -X)
