"""Convolutions of one channel each: sums of overlapping windows stay in registers, wherever they are computed."""

from __future__ import annotations

import numpy as np
import pytest

from collage_halide.stages import Window
from collage_testing.kit.host_kernels import HostKernels
from collage_testing.kit.written import written

RNG = np.random.default_rng(0)

WINDOWS = {
    "high": "kernel_shape=[5,1], pads=[2,0,2,0]",
    "wide": "kernel_shape=[1,5], pads=[0,2,0,2]",
    "far apart": "kernel_shape=[3,3], dilations=[2,2], pads=[2,2,2,2]",
    "behind the end": "kernel_shape=[3,3], pads=[0,0,2,2]",
    "before the beginning": "kernel_shape=[3,3], pads=[2,2,0,0]",
    "large": "kernel_shape=[7,7], pads=[3,3,3,3]",
}


@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
def test_windows_of_any_form(window: str, kernels: HostKernels) -> None:
    high, wide = (int(each) for each in window.partition("[")[2].partition("]")[0].split(","))
    what = written(
        "g (float[2,5,23,50] x) => (float[2,5,23,50] y) {"
        f" n = Neg(x) c = Conv<group=5, {window}>(n, w, b) y = Relu(c) }}",
        {
            "w": RNG.standard_normal((5, 1, high, wide)).astype(np.float32),
            "b": RNG.standard_normal(5).astype(np.float32),
        },
    )
    kernels.check(what, {"x": RNG.standard_normal((2, 5, 23, 50)).astype(np.float32)}, effort=0)


@pytest.mark.parametrize(
    ("shape", "body"),
    [
        ("1,8,10,17", "r = Relu(c) y = MaxPool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]>(r)"),
        ("1,8,19,33", "y = InstanceNormalization(c, s, z)"),
        ("1,8,38,66", 'y = Resize<mode="linear">(c, , twice)'),
        ("1,8,1,1", "y = GlobalAveragePool(c)"),
        ("1,8,19,33", "y = Softmax<axis=1>(c)"),
        ("1,8,19,33", "m = ReduceMax(c, last) y = Sub(c, m)"),
        ("1,19,33,8", "t = Transpose<perm=[0,2,3,1]>(c) y = LayerNormalization(t, s, z)"),
        ("1,8,33,19", "t = Transpose<perm=[0,1,3,2]>(c) y = Relu(t)"),
    ],
    ids=["pooling", "instance norm", "resize", "mean", "softmax", "rows", "layer norm", "transposed"],
)
def test_windows_inside_other_loops(shape: str, body: str, kernels: HostKernels) -> None:
    what = written(
        f"g (float[1,8,19,33] x) => (float[{shape}] y) <int64[1] last = {{3}}, float[4] twice = {{1.0,1.0,2.0,2.0}}> {{"
        f" c = Conv<group=8, kernel_shape=[5,3], pads=[2,1,2,1]>(x, w) {body} }}",
        {
            "w": RNG.standard_normal((8, 1, 5, 3)).astype(np.float32),
            "s": RNG.standard_normal(8).astype(np.float32),
            "z": RNG.standard_normal(8).astype(np.float32),
        },
    )
    kernels.check(what, {"x": RNG.standard_normal((1, 8, 19, 33)).astype(np.float32)}, effort=0)


@pytest.mark.parametrize("extent", range(1, 6))
@pytest.mark.parametrize("step", range(1, 5))
@pytest.mark.parametrize("dilation", range(1, 5))
def test_windows_overlap_where_some_two_share_an_element(extent: int, step: int, dilation: int) -> None:
    window = Window(None, extent, step, dilation)
    every = [{number * step + element * dilation for element in range(extent)} for number in range(20)]

    assert window.overlaps == any(every[0] & each for each in every[1:])
    assert window.read(7) == len(set[int]().union(*every[:7]))
