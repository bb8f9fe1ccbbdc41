"""A kernel's outputs behind a QuantizeLinear are held to quanta, the others to what they always were."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir
import pytest

from collage.reference.judge import Judge, Verdict

RIGHT = np.random.default_rng(0).integers(0, 255, 400).astype(np.uint8)


def judge(values: Any, right: Any, *, roundings: int = 0, relative: float = 1e-3) -> Verdict:
    """Judge values behind as many roundings."""
    steps = "".join(
        f"q{n} = QuantizeLinear(d{n}, s, z) d{n + 1} = DequantizeLinear(q{n}, s, z)" for n in range(roundings)
    )
    last = f"y = Identity(q{roundings - 1})" if roundings and right.dtype == np.uint8 else f"y = Identity(d{roundings})"
    text = '<ir_version: 10, opset_import: ["" : 21]> g (float[400] x, float s, uint8 z) => (float[400] y)'
    model = onnx_ir.from_onnx_text(text + f"{{ d0 = Identity(x) {steps} {last} }}")
    return Judge(model.graph, correct=True, relative=relative, mismatched=1e-3).verdict("y", values, right, None)


def off(count: int) -> np.ndarray[Any, Any]:
    """The right elements, some of them a quantum off."""
    wrong = RIGHT.copy()
    wrong[:count] ^= 1
    return wrong


@pytest.mark.guards("right toolchains round a number between two quanta up or down")
def test_a_few_elements_may_be_a_quantum_off_behind_a_rounding_only() -> None:
    assert not judge(off(5), RIGHT, roundings=1).problem
    assert judge(off(5), RIGHT).problem == "5 of 400 elements differ"


@pytest.mark.guards("a quantised kernel with a wrong zero point, scale, bias or channel, or that rounds down")
@pytest.mark.parametrize("roundings", [1, 3, 9])
def test_all_of_them_may_not(roundings: int) -> None:
    assert judge(off(400), RIGHT, roundings=roundings).problem.startswith("it is 1 quanta off, allowed behind")


def test_numbers_behind_a_rounding_do_not_count_as_error() -> None:
    right = RIGHT.astype(np.float32)

    verdict = judge(off(1).astype(np.float32), right, roundings=1, relative=0.0)

    assert not verdict.problem
    assert not verdict.is_of_numbers
    assert judge(right + 20, right, roundings=1).problem
