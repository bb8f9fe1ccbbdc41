from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from collage.reference import discrepancy_of, relative_error


def test_the_error_is_relative_to_the_scale_of_the_tensor() -> None:
    expected = np.array([1e-9, 100.0], np.float32)

    assert relative_error(np.array([1e-3, 100.0], np.float32), expected) == pytest.approx(1e-5)


def test_equal_tensors_have_no_error() -> None:
    assert discrepancy_of(np.zeros(3, np.float32), np.zeros(3, np.float32)).error == 0.0
    assert discrepancy_of(np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32)).error == 0.0


def test_any_difference_from_zero_is_large() -> None:
    assert relative_error(np.array([1e-3], np.float32), np.array([0.0], np.float32)) > 1e20


def test_nan_and_infinity_are_equal_in_the_same_places() -> None:
    odd = np.array([np.nan, np.inf, -np.inf, 2.0], np.float32)

    assert discrepancy_of(odd, odd).error == 0.0
    result = discrepancy_of(np.array([0.0, np.inf, np.inf, 2.0], np.float32), odd)
    assert result.error == np.inf
    assert result.mismatched == 2


@pytest.mark.parametrize(
    ("actual", "reason"),
    [
        (np.zeros((2, 1), np.float32), "shape"),
        (np.zeros(2, np.float64), "type"),
        (None, "absent"),
    ],
)
def test_another_shape_or_type_is_infinitely_far(actual: object, reason: str) -> None:
    result = discrepancy_of(actual, np.zeros(2, np.float32))

    assert result.error == np.inf
    assert reason in result.reason


def test_integers_and_strings_report_the_fraction_that_differs() -> None:
    assert relative_error(np.array([1, 2, 3, 9]), np.array([1, 2, 3, 4])) == 0.25
    assert relative_error(np.array([True, False]), np.array([True, True])) == 0.5
    words = np.array(["a", "b"], dtype=object)
    assert relative_error(np.array(["a", "b"]), words) == 0.0


def test_bfloat16_is_judged_as_a_number() -> None:
    expected = np.array([1.0, 2.0], ml_dtypes.bfloat16)

    assert relative_error(np.array([1.0, 2.015625], ml_dtypes.bfloat16), expected) < 0.02


def test_sequences_compare_by_element() -> None:
    expected = [np.array([1.0], np.float32), np.array([2.0], np.float32)]

    assert relative_error([np.array([1.0], np.float32), np.array([2.2], np.float32)], expected) == pytest.approx(0.1)
    assert relative_error([np.array([1.0], np.float32)], expected) == np.inf
