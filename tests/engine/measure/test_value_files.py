from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from collage.errors import WireError
from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.value_files import read_values, write_values

VALUES: dict[str, Any] = {
    "float": np.arange(12, dtype=np.float32).reshape(3, 4),
    "transposed": np.arange(12, dtype=np.float64).reshape(3, 4).T,
    "bfloat16": np.array([1.5, -2.0, np.inf], ml_dtypes.bfloat16),
    "float8": np.array([1.5, -2.0], ml_dtypes.float8_e4m3fn),
    "boolean": np.array([True, False]),
    "scalar": np.array(7, np.int64),
    "not a number": np.array([np.nan, -0.0], np.float32),
    "zero size": np.zeros((2, 0, 3), np.float32),
    "strings": np.array([["a", ""], ["ü", "b c"]], object),
    "one string": np.array("word", object),
    "sequence": [np.ones(2, np.float32), np.zeros((0, 1), np.int32)],
    "empty sequence": [],
    "sequence of strings": [np.array(["x", "y"], object)],
    "absent": None,
}


def same(actual: Any, expected: Any) -> bool:
    if expected is None:
        return actual is None
    if isinstance(expected, list):
        return len(actual) == len(expected) and all(map(same, actual, expected))
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    if expected.dtype == object:
        return bool((actual == expected).all())
    return bool(np.ascontiguousarray(actual).tobytes() == np.ascontiguousarray(expected).tobytes())


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "blobs")


@pytest.mark.parametrize("name", VALUES)
def test_values_reach_another_process_unchanged(name: str, store: BlobStore, tmp_path: Path) -> None:
    write_values(tmp_path / "values.json", {name: VALUES[name]}, store)

    read = read_values(tmp_path / "values.json")

    assert list(read) == [name]
    assert same(read[name], VALUES[name])


def test_names_keep_their_order(store: BlobStore, tmp_path: Path) -> None:
    write_values(tmp_path / "values.json", VALUES, store)

    assert list(read_values(tmp_path / "values.json")) == list(VALUES)


def test_elements_are_in_the_store_once_and_not_in_the_document(store: BlobStore, tmp_path: Path) -> None:
    large = np.arange(100_000, dtype=np.float32)

    write_values(tmp_path / "values.json", {"x": large, "again": large.copy()}, store)

    assert (tmp_path / "values.json").stat().st_size < 2000
    assert len([path for path in (tmp_path / "blobs").rglob("*") if path.is_file()]) == 1


def test_a_lost_tensor_is_an_error_and_not_a_guess(store: BlobStore, tmp_path: Path) -> None:
    write_values(tmp_path / "values.json", {"x": np.ones(3, np.float32)}, store)
    for path in (tmp_path / "blobs").rglob("*"):
        if path.is_file():
            path.unlink()

    with pytest.raises(WireError):
        read_values(tmp_path / "values.json")
