"""Variants by Halide's own autoschedulers: they are offered for the effort they are worth, and compute the same."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from collage.devices.this_host import this_host
from collage_core.contract import Unsupported
from collage_halide.autoschedulers import AUTOSCHEDULERS
from collage_testing.kit.host_kernels import HostKernels
from collage_testing.kit.written import WrittenFunction, written

SOFTMAX = "g (float[64,700] x) => (float[64,700] y) { y = Softmax<axis=-1>(x) }"
UPSAMPLED = """g (float[1,7,16,16] x) => (int64[1,32,32] y) <float[4] s = {1, 1, 2, 2}, float[1,7,32,32] r> {
    r = Resize<mode="linear">(x, , s)
    y = ArgMax<axis=1, keepdims=0>(r)
}"""
POOLED = """g (float[1,6,32,32] x) => (float[1,6,16,16] y) <float[1,6,32,32] a> {
    a = Relu(x)
    y = MaxPool<kernel_shape=[2,2], strides=[2,2]>(a)
}"""


def variants(subject: WrittenFunction, kernels: HostKernels, effort: int) -> list[str]:
    build = kernels.build(effort=effort, max_variants=9)
    answer = kernels.plugin.collage_lower(kernels.target, subject.function, build)
    assert not isinstance(answer, Unsupported)
    return [each.variant for each in answer]


@pytest.mark.parametrize("text", [SOFTMAX, UPSAMPLED, POOLED], ids=["softmax", "upsampled", "pooled"])
@pytest.mark.parametrize("name", ["mullapudi", pytest.param("adams", marks=pytest.mark.slow)])
def test_its_loops_compute_the_same(name: str, text: str, kernels: HostKernels) -> None:
    subject = written(text)
    shape = subject.function.inputs[0].static_shape
    feeds = {"x": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}

    answer = kernels.plugin.collage_lower(kernels.target, subject.function, kernels.build(variant=name, threads=2))

    assert not isinstance(answer, Unsupported)
    [artifact] = answer
    assert artifact.variant == name
    for found, right in zip(kernels.run(subject, artifact, feeds), subject.expected(feeds), strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-6)


def test_it_takes_part_where_the_effort_is_worth_its_time(kernels: HostKernels) -> None:
    assert "mullapudi" not in variants(written(SOFTMAX), kernels, 0)
    assert "mullapudi" in variants(written(SOFTMAX), kernels, 1)


def test_a_schedule_that_reads_outside_its_inputs_is_no_variant(kernels: HostKernels) -> None:
    """Of the float16 numbers that a vector of AVX-512 has, 32, Adams2019 computes all for rows of 30.

    Halide compiles that, and prints that it cannot run.
    """
    flags = "avx sse4_1 sse4_2 popcnt avx2 bmi1 bmi2 abm movbe f16c fma avx512f avx512cd avx512vl avx512dq avx512bw"
    host = dataclasses.replace(this_host(), system="Linux x86_64", cpu_flags=frozenset(flags.split()))
    rows = "g (float16[30,{0}] x) => (float16[{0},30] y) {{ a = Sigmoid(x) y = Transpose<perm=[1,0]>(a) }}"

    def found(columns: int) -> list[str]:
        build = kernels.build(effort=2, max_variants=9, host=host)
        function = written(rows.format(columns)).function
        return [each.variant for each in kernels.plugin.collage_lower(kernels.target, function, build)]

    assert found(30) == ["kept-4", "inline-4", "mullapudi"]
    assert found(33) == ["kept-4", "inline-4", "mullapudi", "adams"]


@pytest.mark.slow
def test_all_take_part_in_an_extensive_search(kernels: HostKernels) -> None:
    assert {each.name for each in AUTOSCHEDULERS} <= {*variants(written(SOFTMAX), kernels, 2)}
