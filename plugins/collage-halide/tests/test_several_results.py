"""Groups with several results: those of one shape are written by the same loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from collage_halide.pipeline import group_of
from collage_testing.kit.host_kernels import HostKernels
from collage_testing.kit.written import WrittenFunction, written

_NORM = "LayerNormalization<axis=-1>"
_WEIGHTS = {"s": np.linspace(0.5, 2, 40, dtype=np.float32), "b": np.linspace(-1, 1, 40, dtype=np.float32)}
_QUANTISED: dict[str, np.ndarray[Any, Any]] = {"scale": np.array(0.03, np.float32), "zero": np.array(120, np.uint8)}


def _residual() -> WrittenFunction:
    text = f"g (float[1,33,40] x, float[33,40] y) => (float[1,33,40] z, float[1,33,40] n) {{z = Add(x, y) n = {_NORM}"
    return written(f"{text}(z, s, b)}}", _WEIGHTS)


CASES = {
    "a residual sum and the norm of it": (_residual(), 1),
    "shapes that differ by axes of extent 1": (
        written(
            "g (float[7,40] x) => (float[7,40] y, float[1,7,40] z) {y = Exp(x) neg = Neg(y) z = Unsqueeze(neg, axes)}",
            {"axes": np.array([0])},
        ),
        1,
    ),
    "results of different types": (
        written(
            "g (float[3,70] x) => (float[3,70] y, uint8[3,70] q) {y = Tanh(x) q = QuantizeLinear(y, scale, zero)}",
            _QUANTISED,
        ),
        1,
    ),
    "one of them moved": (
        written("g (float[30,30] x) => (float[30,30] y, float[30,30] z) {y = Sigmoid(x) z = Transpose<perm=[1,0]>(y)}"),
        1,
    ),
    "a sum along rows read by both": (
        written(
            "g (float[9,50] x) => (float[9,50] y, float[9,50] z)"
            " {total = ReduceSum<keepdims=1>(x, axes) y = Div(x, total) z = Sub(x, total)}",
            {"axes": np.array([1])},
        ),
        1,
    ),
    "a reduction and what it was taken of": (
        written(
            "g (float[9,50] x) => (float[9,50] y, float[9] m) {y = Exp(x) m = ReduceMax<keepdims=0>(y, axes)}",
            {"axes": np.array([1])},
        ),
        2,
    ),
    "one without elements": (
        written(
            "g (float[4,9] x) => (float[4,9] y, float[0,9] z) {y = Abs(x) z = Slice(y, start, end)}",
            {"start": np.array([4]), "end": np.array([9])},
        ),
        1,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_every_result_is_what_the_reference_gives(name: str, kernels: HostKernels) -> None:
    what, loops = CASES[name]
    assert len(group_of(what.function, 64, 2).outputs) == loops
    draw = np.random.default_rng(7)
    feeds = {
        spec.name: draw.standard_normal(spec.static_shape).astype(spec.numpy_dtype) for spec in what.function.inputs
    }
    kernels.check(what, feeds)
