"""Reductions to fewer results than there are threads: cut into pieces that run in parallel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collage_core.contract import Target
from collage_halide.pipeline import group_of
from collage_halide.plugin import plugin
from collage_testing.kit.host_kernels import HostKernels
from collage_testing.kit.written import written

RNG = np.random.default_rng(0)


@pytest.fixture
def four(tmp_path: Path) -> HostKernels:
    return HostKernels(plugin, Target(toolchain="halide", fingerprint="test"), tmp_path, threads=4)


@pytest.mark.parametrize(
    ("inputs", "outputs", "body"),
    [
        ("float[300000] x", "float[1] y", "a = Abs(x) y = ReduceSum(a)"),
        ("float[2,300000] x", "float[2,1] y", "y = ReduceMax(x, last)"),
        ("float[300000,3] x", "float[1,3] y", "y = ReduceMin(x, first)"),
        ("float[1,1,600,500] x", "float[1,1,600,500] y", "y = InstanceNormalization(x, one, one)"),
        ("float[1,300000] x", "float[1,300000] y", "y = Softmax<axis=1>(x)"),
        ("int64[300000] x", "int64[1] y", "y = ReduceSum(x)"),
    ],
    ids=["one sum", "two rows", "three columns", "norm", "softmax", "integers"],
)
def test_a_result_may_be_put_together_from_pieces(inputs: str, outputs: str, body: str, four: HostKernels) -> None:
    constants = "float[1] one = {1}, int64[1] first = {0}, int64[1] last = {1}"
    what = written(f"g ({inputs}) => ({outputs}) <{constants}> {{ {body} }}")
    [spec] = what.function.inputs
    values: Any = RNG.standard_normal(spec.static_shape) * 100 if "int64" in inputs else RNG.random(spec.static_shape)

    assert sum(stage.apart for stage in group_of(what.function, 32, 4).stages) >= 1
    four.check(what, {"x": values.astype(spec.numpy_dtype)}, tolerance=2e-4, effort=0)


def test_a_length_without_divisors_is_not_cut(four: HostKernels) -> None:
    what = written("g (float[300007] x) => (float[1] y) { y = ReduceSum(x) }")

    assert not any(stage.apart for stage in group_of(what.function, 32, 4).stages)
    four.check(what, {"x": RNG.random(300007).astype(np.float32)}, effort=0)
