"""What is right, and what is wrong, behind a QuantizeLinear."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from collage.reference import discrepancy_of
from collage.reference.rounded import rounded_problem

Array = np.ndarray[Any, Any]
SCALE = 0.05


def problem(actual: Any, expected: Any, roundings: int = 1, **allowed: float) -> str:
    return rounded_problem(discrepancy_of(actual, expected), actual, expected, roundings=roundings, **allowed)


def quantised(values: Array, scale: float = SCALE, zero: int = 0, how: Callable[[Array], Array] = np.rint) -> Array:
    rounded: Array = np.clip(how(values / scale) + zero, -128, 127).astype(np.int8)
    return rounded


def values(size: int = 4000) -> Array:
    return np.random.default_rng(0).standard_normal(size)


@pytest.mark.guards(
    "right toolchains round a number between two quanta up or down",
    "accepted, as far as the roundings in a row explain it",
    area="input",
)
def test_elements_between_two_quanta_may_go_either_way() -> None:
    exact = values()
    near = quantised(exact * (1 + 2e-4))

    assert 0 < np.count_nonzero(near != quantised(exact)) < 40
    assert problem(near, quantised(exact)) == ""


@pytest.mark.guards("right toolchains round a number between two quanta up or down")
def test_the_more_roundings_in_a_row_the_further_right_values_are_apart() -> None:
    exact = values()
    other = quantised(exact + np.random.default_rng(1).normal(size=exact.size) * 0.5 * SCALE)

    assert "quanta off, allowed behind 1 roundings 0.1" in problem(other, quantised(exact))
    assert problem(other, quantised(exact), roundings=10) == ""
    assert problem(quantised(exact[::-1]), quantised(exact), roundings=1000)


@pytest.mark.guards(
    "a quantised kernel with a wrong zero point, scale, bias or channel, or that rounds down",
    "wrong numbers",
    area="input",
)
@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: quantised(x, zero=1),
        lambda x: quantised(x, scale=SCALE * 1.1),
        lambda x: quantised(x, how=np.floor),
        lambda x: quantised(x + 0.4 * SCALE),
        lambda x: quantised(x[::-1]),
        lambda x: quantised(np.where(np.arange(x.size) % 16 == 0, x + 3 * SCALE, x)),
    ],
    ids=["zero point", "scale", "rounds down", "bias", "order", "a channel of sixteen"],
)
def test_what_moves_many_elements_is_wrong(wrong: Callable[[Array], Array]) -> None:
    assert problem(wrong(values()), quantised(values()))


def test_two_classes_of_ten_may_be_a_quantum_off_and_all_may_not() -> None:
    right = quantised(values(10))
    near, far = right.copy(), right.copy()
    near[3:5] += 1
    far[3] += 2

    assert problem(near, right) == ""
    assert problem(far, right)
    assert problem(far, right, mismatched=0.1) == ""
    assert problem((right + 1).astype(np.int8), right)


def test_numbers_made_of_few_bits_may_be_off_by_what_a_quantum_does() -> None:
    right = values(1000).astype(np.float32)
    one_off = right.copy()
    one_off[7] += np.abs(right).max() / 127

    assert problem(one_off, right) == ""
    assert problem(right * np.float32(1.1), right)
    assert problem(right * np.float32(1.1), right, relative=0.2) == ""
    assert problem(right[::-1], right, roundings=1000)
    assert "NaN" in problem(right * np.nan, right)


def test_floats_of_eight_bits_may_be_one_apart() -> None:
    right = np.array([1.0, 1.75, 0.5], np.float32).astype(ml_dtypes.float8_e4m3fn)
    next_one = np.array([1.0, 1.875, 0.5], np.float32).astype(ml_dtypes.float8_e4m3fn)
    further = np.array([1.25, 2.25, 0.5], np.float32).astype(ml_dtypes.float8_e4m3fn)

    assert problem(next_one, right) == ""
    assert problem(further, right)


def test_four_bits_are_counted_too() -> None:
    right = np.arange(-8, 8).astype(ml_dtypes.int4)
    near, far = right.copy(), right.copy()
    near[0] = -7
    far[0] = 3

    assert problem(near, right) == ""
    assert problem(far, right)


def test_labels_of_near_scores_may_differ_and_most_may_not() -> None:
    right = np.arange(1000) % 7
    few, many = right.copy(), right.copy()
    few[::50] += 1
    many[::2] += 1

    assert problem(few, right, roundings=5) == ""
    assert problem(few, right) == "20 of 1000 elements differ behind 1 roundings"
    assert problem(many, right, roundings=1000) == "500 of 1000 elements differ behind 1000 roundings"


def test_nothing_is_right() -> None:
    assert problem(np.zeros((0, 3), np.uint8), np.zeros((0, 3), np.uint8)) == ""
    assert problem(np.zeros(0, np.float32), np.zeros(0, np.float32)) == ""


def test_another_shape_or_type_is_wrong_as_everywhere() -> None:
    assert "shape" in problem(np.zeros(3, np.int8), np.zeros(2, np.int8))
    assert "type" in problem(np.zeros(2, np.uint8), np.zeros(2, np.int8))
