"""Reductions of resized values, phase by phase: several side by side, and rows that are no whole number of vectors."""

from __future__ import annotations

import numpy as np
import pytest

from collage_testing.kit.host_kernels import HostKernels
from collage_testing.kit.written import WrittenFunction, written

RNG = np.random.default_rng(0)
CHANNELS, ROWS = 7, 40
"""Rows enough for several tasks for each thread."""
REDUCED = {
    "largest": ("int64", "y = ArgMax<axis=1, keepdims=1>(r)"),
    "last smallest": ("int64", "y = ArgMin<axis=1, keepdims=1, select_last_index=1>(r)"),
    "maximum": ("float", "y = ReduceMax(r, over)"),
    "sum": ("float", "y = ReduceSum(r, over)"),
}


def resized(how: str, mode: str, factor: int, width: int) -> WrittenFunction:
    """Return a reduction along channels of what is enlarged by a factor."""
    kind, body = REDUCED[how]
    shape = f"{ROWS * factor},{width * factor}"
    return written(
        f"g (float[1,{CHANNELS},{ROWS},{width}] x) => ({kind}[1,1,{shape}] y) <int64[1] over = {{1}},"
        f" float[1,{CHANNELS},{shape}] r> {{ r = Resize<mode={mode}>(x, , by) {body} }}",
        {"by": np.array([1, 1, factor, factor], np.float32)},
    )


@pytest.mark.parametrize("how", REDUCED)
@pytest.mark.parametrize("width", [5, 8, 21, 33])
@pytest.mark.parametrize("factor", [2, 4, 8])
def test_of_equal_elements_the_right_one_is_found(factor: int, width: int, how: str, kernels: HostKernels) -> None:
    """Whole numbers, mixed by shares that are multiples of powers of two: no rounding decides between equals."""
    x = RNG.integers(-3, 4, (1, CHANNELS, ROWS, width)).astype(np.float32)

    kernels.check(resized(how, '"linear"', factor, width), {"x": x}, effort=0)


@pytest.mark.parametrize("mode", ['"linear"', '"cubic"', '"nearest"'])
@pytest.mark.parametrize("factor", [3, 5, 6, 7])
def test_any_number_of_phases(factor: int, mode: str, kernels: HostKernels) -> None:
    x = RNG.standard_normal((1, CHANNELS, ROWS, 19)).astype(np.float32)

    kernels.check(resized("maximum", mode, factor, 19), {"x": x}, effort=0)


def test_strange_numbers_in_the_last_vector(kernels: HostKernels) -> None:
    """Held against NumPy: ONNX's reference multiplies infinities by zero."""
    x = RNG.integers(-3, 4, (1, CHANNELS, ROWS, 21)).astype(np.float32)
    x[0, [2, 5], :, 20], x[0, 3, :, 19], x[0, :, :, 18] = np.nan, np.inf, -np.inf
    right = np.argmax(x, axis=1, keepdims=True).repeat(4, axis=2).repeat(4, axis=3)
    what = resized("largest", '"nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"', 4, 21)

    for artifact in kernels.lowered(what, variants=9):
        np.testing.assert_array_equal(kernels.run(what, artifact, {"x": x})[0], right)


def test_of_one_column_phases_are_all_there_is(kernels: HostKernels) -> None:
    what = written(
        "g (float[1,7,40,1] x) => (float[1,1,160,1] y) <int64[1] channels = {1}, int64[1] columns = {3},"
        " float[1,7,160,4] r, float[1,1,160,4] m> {"
        ' r = Resize<mode="nearest">(x, , by) m = ReduceMax(r, channels) y = ReduceSum(m, columns) }',
        {"by": np.array([1, 1, 4, 4], np.float32)},
    )
    kernels.check(what, {"x": RNG.standard_normal((1, 7, 40, 1)).astype(np.float32)})


@pytest.mark.parametrize("width", [21, 70])
def test_phases_that_gather(width: int, kernels: HostKernels) -> None:
    what = resized("maximum", '"linear", coordinate_transformation_mode="align_corners"', 4, width)
    kernels.check(what, {"x": RNG.standard_normal((1, CHANNELS, ROWS, width)).astype(np.float32)}, effort=0)


@pytest.mark.parametrize("dtype", ["float16", "int8", "int64"])
def test_phases_of_other_types(dtype: str, kernels: HostKernels) -> None:
    what = written(
        f"g ({dtype}[1,7,40,21] x) => ({dtype}[1,1,160,84] y) <int64[1] over = {{1}}, {dtype}[1,7,160,84] r> {{"
        ' r = Resize<mode="nearest">(x, , by) y = ReduceMax(r, over) }',
        {"by": np.array([1, 1, 4, 4], np.float32)},
    )
    [spec] = what.function.inputs
    kernels.check(what, {"x": RNG.integers(-50, 50, (1, 7, 40, 21)).astype(spec.numpy_dtype)})
