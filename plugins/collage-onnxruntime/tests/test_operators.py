"""Kernels against ONNX's reference, operator by operator and in groups."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from collage_core.contract import Target
from collage_testing.kit.host_kernels import HostKernels
from collage_testing.kit.operator_cases import normal, operator_cases
from collage_testing.kit.written import written

CASES = operator_cases()


@pytest.mark.parametrize("name", CASES)
def test_a_function_gives_what_the_reference_gives(name: str, kernels: HostKernels) -> None:
    kernels.check(CASES[name].function(), *CASES[name].feeds)


def test_strings_go_in_and_out_beside_tensors(kernels: HostKernels) -> None:
    subject = written("g (string[2] x, float[2] z) => (string[2] y, float[2] w) { y = Identity(x) w = Neg(z) }")
    kernels.check(subject, {"x": np.array(["a", "b"], object), "z": normal(2)})


def test_sequences_go_out_and_in(kernels: HostKernels) -> None:
    pack = written("g (float[2] x, float[2] z) => (seq(float) y) { y = SequenceConstruct(x, z) }")
    take = written("g (seq(float) y) => (float[2] x) { x = SequenceAt(y, i) }", {"i": np.array(1, np.int64)})
    x, z = normal(2), normal(2) + 1
    [sequence] = kernels.run(pack, kernels.lowered(pack)[0], {"x": x, "z": z})
    [found] = kernels.run(take, kernels.lowered(take)[0], {"y": sequence})
    np.testing.assert_array_equal(found, z)


def test_packed_weights_inside_a_kernel_are_fine(kernels: HostKernels) -> None:
    q = np.random.default_rng(0).integers(-8, 8, (64, 64)).astype(ml_dtypes.int4)
    subject = written(
        "g (float[3,64] x) => (float[3,64] y) { d = DequantizeLinear(q, s) y = MatMul(x, d) }",
        {"q": q, "s": np.array(0.1, np.float32)},
        opset=21,
    )
    x = normal(3, 64)
    [y] = kernels.run(subject, kernels.lowered(subject)[0], {"x": x})
    np.testing.assert_allclose(y, x @ (q.astype(np.float32) * np.float32(0.1)), atol=1e-4)


def test_several_threads_and_spinning_change_nothing(kernels: HostKernels) -> None:
    case = CASES["a small classifier"]
    subject, [feeds] = case.function(), case.feeds
    [artifact] = kernels.lowered(subject)
    spinning = Target(toolchain="onnxruntime", options=(("spin", "true"),), fingerprint="t")
    for found in (
        kernels.run(subject, artifact, feeds, threads=2),
        kernels.run(subject, artifact, feeds, target=spinning, threads=2),
    ):
        np.testing.assert_allclose(found[0], subject.expected(feeds)[0], atol=1e-4)
