from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

from collage.cli.arrays import random_arrays, read_values, write_values


def node_arg(kind: str, shape: list[Any]) -> Any:
    return types.SimpleNamespace(name="x", type=kind, shape=shape)


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        ("tensor(float)", "float32"),
        ("tensor(double)", "float64"),
        ("tensor(float16)", "float16"),
        ("tensor(bfloat16)", "bfloat16"),
        ("tensor(int64)", "int64"),
        ("tensor(uint8)", "uint8"),
        ("tensor(bool)", "bool"),
    ],
)
def test_random_inputs_fit_and_repeat(kind: str, dtype: str) -> None:
    first, second = (random_arrays([node_arg(kind, [2, 3])], seed=1)["x"] for _ in range(2))

    assert (first.shape, first.dtype.name) == ((2, 3), dtype)
    np.testing.assert_array_equal(first, second)


def test_a_scalar_can_be_drawn() -> None:
    assert random_arrays([node_arg("tensor(float)", [])], seed=0)["x"].shape == ()


@pytest.mark.parametrize(
    ("kind", "shape"), [("tensor(float)", ["batch", 3]), ("tensor(string)", [1]), ("seq(tensor(float))", [])]
)
def test_what_cannot_be_drawn_is_asked_for(kind: str, shape: list[Any]) -> None:
    with pytest.raises(click.UsageError, match="give it with --inputs") as caught:
        random_arrays([node_arg(kind, shape)], seed=0)
    assert ("named 'x[0]', 'x[1]'" in str(caught.value.format_message())) == kind.startswith("seq")


def test_arrays_come_back_under_any_name_and_half_floats_as_floats(tmp_path: Path) -> None:
    import ml_dtypes

    path = tmp_path / "y"
    write_values(
        path,
        {
            "file": np.arange(3),
            "a/b": np.array(["p", "qq"], dtype=object),
            "half": np.array([1.5], dtype=ml_dtypes.bfloat16),
        },
    )

    read = read_values(path, [])

    assert read["file"].tolist() == [0, 1, 2]
    assert read["a/b"].tolist() == ["p", "qq"]
    assert (read["half"].dtype.name, read["half"].tolist()) == ("float32", [1.5])
    assert list(tmp_path.iterdir()) == [path]


def test_sequences_absent_values_and_types_numpy_has_not_come_back(tmp_path: Path) -> None:
    import ml_dtypes

    kinds = {"s": "seq(tensor(float))", "none": "seq(tensor(string))", "o": "optional(tensor(float))"}
    kinds |= {"h": "tensor(bfloat16)", "e": "tensor(uint4)"}
    values: dict[str, Any] = {"s": [np.array([1, 2], np.float32), np.array([3], np.float32)], "none": [], "o": None}
    values |= {"h": np.array([1.5], ml_dtypes.bfloat16), "e": np.array([15], ml_dtypes.uint4)}

    write_values(tmp_path / "x.npz", values)
    read = read_values(tmp_path / "x.npz", [types.SimpleNamespace(name=n, type=k) for n, k in kinds.items()])  # type: ignore[misc]

    assert [each.tolist() for each in read["s"]] == [[1, 2], [3]]
    assert (read["none"], read["o"]) == ([], None)
    assert [(read[name].dtype, read[name].tolist()) for name in "he"] == [
        (values[n].dtype, values[n].tolist()) for n in "he"
    ]


def test_what_npz_cannot_hold_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(click.ClickException, match="output 'y': it is a dict"):
        write_values(tmp_path / "y.npz", {"y": {}})

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["text", "npy", "objects", "empty"])
def test_what_is_no_npz_file_is_misuse(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x.npz"
    if kind in ("text", "empty"):
        path.write_text("hello" if kind == "text" else "")
    elif kind == "npy":
        with path.open("wb") as stream:
            np.save(stream, np.ones(2))
    else:
        np.savez(path, x=np.array([{}], dtype=object))

    with pytest.raises(click.BadParameter, match="not an NPZ file"):
        read_values(path, [])
