"""Kernels against ONNX's reference, operator by operator and in groups."""

from __future__ import annotations

import pytest

from collage_core.contract import Unsupported
from collage_testing.kit.host_kernels import HostKernels
from collage_testing.kit.operator_cases import operator_cases

CASES = operator_cases()


@pytest.mark.parametrize("name", CASES)
def test_a_function_gives_what_the_reference_gives(name: str, kernels: HostKernels) -> None:
    function = CASES[name].function()
    answer = kernels.answer(function.function)
    if isinstance(answer, Unsupported):
        pytest.skip(answer.reason)
    kernels.check(function, *CASES[name].feeds)
