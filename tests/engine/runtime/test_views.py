from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest

from collage.runtime.views import view_of
from collage_core.contract import Unsupported

Parse = Callable[[str], ir.Model]

X = np.arange(24, dtype=np.float32).reshape(2, 1, 3, 4)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("Identity(x)", (2, 1, 3, 4)),
        ("Flatten(x)", (2, 12)),
        ("Flatten<axis=-1>(x)", (6, 4)),
        ("Flatten<axis=0>(x)", (1, 24)),
        ("Reshape(x, free)", (6, 4)),
        ("Reshape(x, keep)", (2, 12)),
        ("Squeeze(x)", (2, 3, 4)),
        ("Squeeze(x, one)", (2, 3, 4)),
        ("Unsqueeze(x, ends)", (1, 2, 1, 3, 4, 1)),
    ],
)
def test_a_view_gives_the_shape_onnx_says(
    parsed: Parse, evaluate: Callable[..., list[np.ndarray]], call: str, expected: tuple[int, ...]
) -> None:
    model = parsed(f"""g (float[2,1,3,4] x) => (float[a] y)
    <int64[2] free = {{-1, 4}}, int64[2] keep = {{0, -1}}, int64[1] one = {{1}}, int64[2] ends = {{0, -1}}>
    {{ y = {call} }}""")

    view = view_of(model.graph[0])

    assert not isinstance(view, Unsupported)
    assert view(X).shape == expected == evaluate(model, {"x": X})[0].shape
    assert np.shares_memory(view(X), X)


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("Neg(x)", "Neg is not a view"),
        ("Reshape(x, s)", "the shape of 'r' are not constant"),
        ("Unsqueeze(x, s)", "the axes of 'r' are not constant"),
    ],
)
def test_what_is_no_view_says_why(parsed: Parse, call: str, reason: str) -> None:
    node = parsed(f"g (float[2,1,3,4] x, int64[2] s) => (float[a] y) {{ y = {call} }}").graph[0]
    node.name = "r"

    answer = view_of(node)

    assert isinstance(answer, Unsupported)
    assert answer.reason == reason
