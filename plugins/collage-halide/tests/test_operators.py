"""Kernels against ONNX's reference, operator by operator and in groups."""

from __future__ import annotations

import pytest

from collage_core.contract import Unsupported
from collage_testing.kit.host_kernels import HostKernels
from collage_testing.kit.operator_cases import operator_cases

CASES = operator_cases()
REFUSED = {
    "matmul": "no kernel for MatMul",
    "gemm": "no kernel for Gemm",
    "top k": "no kernel for TopK",
    "einsum": "no kernel for Einsum",
    "conv, relu, add": "libraries are faster",
    "a weight used twice": "no kernel for MatMul",
    "if": "no kernel for If",
    "a weight captured by a branch, and one made inside it": "no kernel for If",
    "a small classifier": "libraries are faster",
    "a transformer block": "no kernel for MatMul",
    "bounded outputs of their true shape": "no kernel for NonMaxSuppression",
    "a bounded shape that changes from call to call": "no kernel for NonZero",
    "a bounded input, read at its current shape": "not known before it runs",
    "a tensor of unknown shape, passed by value": "not known before it runs",
}
"""Part of the reason why a function is refused."""


@pytest.mark.parametrize("name", [name for name in CASES if name not in REFUSED])
def test_a_function_gives_what_the_reference_gives(name: str, kernels: HostKernels) -> None:
    kernels.check(CASES[name].function(), *CASES[name].feeds)


@pytest.mark.parametrize("name", REFUSED)
def test_a_function_is_refused(name: str, kernels: HostKernels) -> None:
    answer = kernels.answer(CASES[name].function().function)
    assert isinstance(answer, Unsupported)
    assert REFUSED[name] in answer.reason
