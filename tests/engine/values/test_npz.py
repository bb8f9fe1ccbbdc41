"""What is no tensor, or has a type NumPy has not, as plain arrays and back."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from collage.values.npz import from_arrays, how_to_give, to_arrays
from collage_core.errors import FeedError

pytestmark = pytest.mark.guards(
    "sequences, optional values, bfloat16 in NPZ files",
    "`s[0]`, `s[1]`, left out, float32; the message says so",
    area="input",
)

KINDS = {
    "x": "tensor(float)",
    "words": "tensor(string)",
    "half": "tensor(bfloat16)",
    "tiny": "tensor(float8e4m3fn)",
    "s": "seq(tensor(int64))",
    "none": "seq(tensor(float))",
    "maybe": "optional(tensor(float))",
    "absent": "optional(seq(tensor(float)))",
    "several": "optional(seq(tensor(string)))",
}


def values() -> dict[str, Any]:
    return {
        "x": np.array([[1, 2]], np.float32),
        "words": np.array(["a", "é"], object),
        "half": np.array([1.5, -2], ml_dtypes.bfloat16),
        "tiny": np.array([0.5], ml_dtypes.float8_e4m3fn),
        "s": [np.array([1]), np.array([[2, 3]])],
        "none": [],
        "maybe": np.array([7], np.float32),
        "absent": None,
        "several": [np.array(["b"], object)],
    }


def test_values_come_back_as_they_were() -> None:
    arrays = to_arrays(values())

    assert {array.dtype.isbuiltin == 2 or array.dtype == object for array in arrays.values()} == {False}
    back = from_arrays(arrays, KINDS)
    assert set(back) == set(KINDS)
    for name, right in values().items():
        found = back[name]
        if not isinstance(right, list):
            found, right = [found], [right]
        for one, other in zip(found, right, strict=True):
            assert one is other or (one.dtype.kind in "OU") == (other.dtype.kind == "O")
            np.testing.assert_array_equal(one, other)


def test_numpy_writes_bfloat16_as_bytes_of_nothing_and_they_are_read_too() -> None:
    given = {"half": values()["half"].view(np.void(2).dtype)}

    assert from_arrays(given, {"half": KINDS["half"]})["half"].tolist() == [1.5, -2]


def test_what_belongs_to_nothing_stays_for_the_caller_to_refuse() -> None:
    one = np.ones(1)

    assert set(from_arrays({"s[0]": one, "s[2]": one, "q": one}, {"s": KINDS["s"]})) == {"s", "s[2]", "q"}
    assert set(from_arrays({"x[0]": one}, {"x": KINDS["x"]})) == {"x[0]"}
    assert set(from_arrays({"s[1]": one}, {"s": KINDS["s"]})) == {"s[1]"}


def test_a_tensor_may_be_named_like_a_member() -> None:
    given = from_arrays({"s[0]": np.ones(1)}, {"s[0]": "tensor(float)"})

    assert given["s[0]"].tolist() == [1]


def test_numbers_of_a_type_that_could_lose_something_stay_as_they_are() -> None:
    assert from_arrays({"half": np.ones(1)}, {"half": KINDS["half"]})["half"].dtype == np.float64


def test_what_is_no_value_is_refused() -> None:
    with pytest.raises(FeedError, match="'y': it is a str"):
        to_arrays({"y": "text"})


def test_how_to_give_what_is_no_tensor_is_said() -> None:
    assert how_to_give("x", "tensor(float)") == ""
    assert "'s[0]', 's[1]'" in how_to_give("s", "seq(tensor(float))")
    assert "leave 's' out" in how_to_give("s", "optional(seq(tensor(float)))")
