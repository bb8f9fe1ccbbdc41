from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from collage.errors import WireError
from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.values import decode_value, encode_value
from collage.measure.wire.wire_values import WireValue
from collage.reference.conditioning import Conditioning


@pytest.mark.parametrize(
    "value",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.arange(6).reshape(2, 3).T,
        np.zeros((0, 4), np.float16),
        np.array(3, np.int8),
        np.array([True, False]),
        np.array([1.5, -2], ml_dtypes.bfloat16),
        np.array([1 + 2j], np.complex64),
        np.array([["a", ""], ["b", "é"]], dtype=object),
    ],
)
def test_values_survive(tmp_path: Path, value: np.ndarray[Any, Any]) -> None:
    store = BlobStore(tmp_path)
    back = decode_value(encode_value(value, store), store)

    assert back.dtype == value.dtype
    np.testing.assert_array_equal(back, value)


def test_sequences_and_absent_optionals_survive(tmp_path: Path) -> None:
    store = BlobStore(tmp_path)
    back = decode_value(encode_value([np.array([1], np.float32), None, [np.array([2], np.int64)]], store), store)

    assert back[0].tolist() == [1.0]
    assert back[1] is None
    assert back[2][0].tolist() == [2]


def test_a_decoded_tensor_cannot_be_written(tmp_path: Path) -> None:
    store = BlobStore(tmp_path)
    back = decode_value(encode_value(np.array([1, 2], np.float32), store), store)

    with pytest.raises(ValueError, match="read-only"):
        back[0] = 3


@pytest.mark.parametrize("change", [{"shape": (3,)}, {"shape": (-2,)}, {"dtype": "DOUBLE"}, {"dtype": "NONSENSE"}])
def test_a_value_that_does_not_fit_its_blob_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    store = BlobStore(tmp_path)
    wire = encode_value(np.array([1, 2], np.float32), store)
    fields = {"kind": wire.kind, "dtype": wire.dtype, "shape": wire.shape, "blob": wire.blob}

    with pytest.raises(WireError):
        decode_value(WireValue(**(fields | change)), store)


def test_equal_bytes_are_one_file_and_no_name_leads_out_of_the_store(tmp_path: Path) -> None:
    store = BlobStore(tmp_path / "blobs")
    names = {store.put(b"x"), store.put(bytearray(b"x")), store.put(memoryview(b"x"))}

    assert len(names) == len(list(store.directory.iterdir())) == 1
    assert bytes(store.map(names.pop())) == b"x"
    with pytest.raises(WireError, match="not the name of a blob"):
        store.path("../" + "0" * 61)
    with pytest.raises(WireError, match="is not in"):
        store.read("0" * 64)


def test_what_rounding_does_to_a_value_is_no_part_of_what_records_are_kept_under(tmp_path: Path) -> None:
    value = encode_value(np.array([1.0, 2.0], np.float32), BlobStore(tmp_path))
    judged = dataclasses.replace(value, conditioning=Conditioning(scale=2.0, octaves=(1,), noise=(1e-7,)))

    assert repr(judged) == repr(value)
    assert judged != value
