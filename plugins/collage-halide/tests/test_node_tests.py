"""ONNX's node tests: kernels give what the standard's own cases say, within its tolerances."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest

from collage.devices.this_host import this_host
from collage_core.contract import Artifact, Buffer, RunContext, Target, Unsupported
from collage_halide.operators.table import OPERATORS
from collage_halide.plugin import plugin
from collage_testing.kit.contexts import build_context

from .node_cases import Array, NodeCase, claimed_cases

TARGET = Target(toolchain="halide", fingerprint="test")
COARSE = 2.0**-7
"""Relative tolerance of bfloat16 and float16: a unit in the last place of the coarser one."""
SOME = ("Softmax", "ArgMax", "Resize", "LayerNormalization", "Concat", "MaxPool", "CumSum", "Gelu", "Pad", "GridSample")


@functools.cache
def cases() -> tuple[NodeCase, ...]:
    return tuple(claimed_cases())


def run(case: NodeCase, artifact: Artifact) -> list[Array]:
    constants = {content: case.function.constant(name) for name, content in artifact.constants.items()}
    kernel = plugin.collage_load(TARGET, artifact, RunContext(threads=2, host=this_host(), constants=constants))
    assert not isinstance(kernel, Unsupported), kernel.reason
    inputs, outputs = ([Buffer(spec) for spec in specs] for specs in (case.function.inputs, case.function.outputs))
    for buffer, value in zip(inputs, case.inputs, strict=True):
        buffer.put(value)
    kernel.bind(inputs, outputs, None)()
    return [buffer.value for buffer in outputs]


def check(case: NodeCase, scratch: Path, variants: int) -> None:
    answer = plugin.collage_lower(TARGET, case.function, build_context(scratch, max_variants=variants))
    assert not isinstance(answer, Unsupported), answer.reason
    ran = 0
    for artifact in answer:
        ran += 1
        for found, right in zip(run(case, artifact), case.outputs, strict=True):
            assert (found.dtype, found.shape) == (right.dtype, right.shape)
            if right.dtype.kind not in "fV":
                np.testing.assert_array_equal(found, right)
                continue
            tolerance = max(case.rtol, COARSE if right.dtype.itemsize == 2 else 0)
            found, right = found.astype(np.float64), right.astype(np.float64)
            np.testing.assert_allclose(found, right, rtol=tolerance, atol=max(case.atol, 1e-6))
    assert ran


def test_every_operator_that_is_claimed_has_a_case() -> None:
    assert set(OPERATORS) - {case.operator for case in cases()} == set()


@pytest.mark.parametrize("operator", SOME)
def test_a_case_of_an_operator_passes(operator: str, tmp_path: Path) -> None:
    check(next(case for case in cases() if case.operator == operator), tmp_path, variants=1)


@pytest.mark.slow
@pytest.mark.parametrize("operator", sorted(OPERATORS))
def test_all_cases_of_an_operator_pass_in_all_variants(operator: str, tmp_path: Path) -> None:
    for case in cases():
        if case.operator == operator:
            check(case, tmp_path, variants=9)
