"""Models run by mock toolchains, and their results compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from collage.runtime.session import Session
from tests.engine.runtime.mocks import ExecutingMock

X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2


def run(model: ir.Model, feeds: dict[str, Any], toolchain: ExecutingMock | None = None) -> list[Any]:
    return Session((toolchain or ExecutingMock()).build(model)).run(None, feeds)


def assert_same(got: list[Any], expected: list[Any]) -> None:
    assert len(got) == len(expected)
    for one, other in zip(got, expected, strict=True):
        if isinstance(other, list):
            assert_same(one, other)
        else:
            assert one.shape == np.shape(other)
            assert one.dtype == np.asarray(other).dtype or one.dtype == object
            np.testing.assert_array_equal(one, other)
