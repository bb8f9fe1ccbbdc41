"""Sequences and optional values that a caller gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from collage.values.foreign_values import fitted_foreign
from collage_core.errors import FeedError
from collage_core.ir.values.tensor_spec import TensorSpec, ValueKind

pytestmark = pytest.mark.guards(
    "sequences and optional values given to a session or to `optimize` in Python",
    "copied and checked; anything else is refused with what is expected",
    area="input",
)


def spec(kind: str) -> TensorSpec:
    return TensorSpec(name="v", kind=ValueKind.FOREIGN, dtype=None, shape=None, type_name=kind)


def test_members_of_a_sequence_are_copies_of_the_models_type() -> None:
    mine = np.array([1, 2], np.float32)

    taken = fitted_foreign((mine, [3, 4], []), spec("seq(tensor(float))"))
    mine[:] = 0

    assert [member.tolist() for member in taken] == [[1, 2], [3, 4], []]
    assert {member.dtype for member in taken} == {np.dtype(np.float32)}


def test_strings_become_objects() -> None:
    [taken] = fitted_foreign([np.array(["a", "bc"])], spec("seq(tensor(string))"))

    assert (taken.dtype, taken.tolist()) == (np.dtype(object), ["a", "bc"])


def test_an_optional_value_may_be_none_and_nothing_else_may() -> None:
    assert fitted_foreign(None, spec("optional(seq(tensor(float)))")) is None
    assert fitted_foreign(np.array([1], np.float32), spec("optional(tensor(float))")).tolist() == [1]
    with pytest.raises(FeedError, match=r"expected a list of arrays \(seq\(tensor\(float\)\)\), got None"):
        fitted_foreign(None, spec("seq(tensor(float))"))


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        (np.zeros((2, 2), np.float32), "seq(tensor(float))", r"a list of arrays .*, got an array of float32\[2, 2\]"),
        ([np.zeros(2)], "seq(tensor(float))", r"got an array of float64\[2\]"),
        ([["a"]], "seq(tensor(float))", "got a list"),
        ([np.zeros(2, np.float32)], "seq(tensor(string))", r"got an array of float32\[2\]"),
        ([[1.5]], "seq(tensor(int64))", "got a list"),
        ([[1], [1, [2]]], "seq(tensor(int64))", "got a list"),
        (np.zeros(2), "optional(tensor(float))", "an array, or None"),
        ("text", "optional(seq(tensor(string)))", "a list of arrays, or None .*, got a str"),
    ],
)
def test_anything_else_is_refused_with_what_is_expected(value: Any, kind: str, message: str) -> None:
    with pytest.raises(FeedError, match=message):
        fitted_foreign(value, spec(kind))
