"""A kernel's outputs behind a QuantizeLinear are held to quanta, the others to what they always were."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir
import pytest

from collage.measure.wire.outcomes import Tolerance
from collage.measure.worker.verdicts import judge
from collage_core.contract import Buffer, TensorSpec

RIGHT = np.random.default_rng(0).integers(0, 255, 400).astype(np.uint8)


def filled(values: np.ndarray[Any, Any]) -> list[Buffer]:
    dtype = onnx_ir.DataType.from_numpy(values.dtype)
    return [Buffer(TensorSpec(name="y", dtype=dtype, shape=values.shape), values)]


def off(count: int) -> np.ndarray[Any, Any]:
    """The right elements, some of them a quantum off."""
    wrong = RIGHT.copy()
    wrong[:count] ^= 1
    return wrong


@pytest.mark.guards("right toolchains round a number between two quanta up or down")
def test_a_few_elements_may_be_a_quantum_off_behind_a_rounding_only() -> None:
    assert judge(filled(off(5)), [RIGHT], Tolerance(), {"y": 1}) == 0.0
    assert judge(filled(off(5)), [RIGHT], Tolerance()) == "output 'y': 5 of 400 elements differ"
    assert judge(filled(off(5)), [RIGHT], Tolerance(), {"z": 1}) == "output 'y': 5 of 400 elements differ"


@pytest.mark.guards("a quantised kernel with a wrong zero point, scale, bias or channel, or that rounds down")
@pytest.mark.parametrize("roundings", [1, 3, 9])
def test_all_of_them_may_not(roundings: int) -> None:
    verdict = judge(filled(off(400)), [RIGHT], Tolerance(), {"y": roundings})

    assert isinstance(verdict, str)
    assert verdict.startswith("output 'y': it is 1 quanta off, allowed behind")


def test_numbers_behind_a_rounding_do_not_count_as_error() -> None:
    right = RIGHT.astype(np.float32)

    assert judge(filled(off(1).astype(np.float32)), [right], Tolerance(relative=0.0), {"y": 1}) == 0.0
    assert isinstance(judge(filled(right + 20), [right], Tolerance(), {"y": 1}), str)
