from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import psutil
import pytest

from collage.errors import WireError
from collage.measure.wire.blobs import BlobStore, drop_pages
from collage.measure.wire.values import decode_value, encode_value


def test_bytes_come_back_read_and_mapped(tmp_path: Path) -> None:
    store = BlobStore(tmp_path)

    for data in (b"", b"weights", bytes(100_000)):
        name = store.put(data)
        assert store.read(name) == data
        assert bytes(store.map(name)) == data
        assert BlobStore(tmp_path).read(name) == data


def test_a_blob_that_is_not_there_is_named(tmp_path: Path) -> None:
    store = BlobStore(tmp_path)
    name = store.put(b"weights")
    store.path(name).unlink()

    for take in (store.read, store.map):
        with pytest.raises(WireError, match=f"blob {name} is not in {tmp_path}; it was deleted, or never sent"):
            take(name)


@pytest.mark.guards("a blob of the run's scratch folder is deleted or altered")
@pytest.mark.parametrize("damaged", [b"weighTs", b"weight", b""])
def test_a_blob_that_was_altered_is_never_used(damaged: bytes, tmp_path: Path) -> None:
    name = BlobStore(tmp_path).put(b"weights")
    store = BlobStore(tmp_path)  # as a worker opens the driver's directory
    store.path(name).write_bytes(damaged)

    for take in (store.read, store.map):
        with pytest.raises(WireError, match=f"blob {name} in {tmp_path} was altered"):
            take(name)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells apart which pages are mapped from files")
def test_pages_that_were_dropped_are_read_again(tmp_path: Path) -> None:
    store = BlobStore(tmp_path)
    numbers = np.arange(1 << 23, dtype=np.float32)
    value = decode_value(encode_value(numbers, store), store)
    process = psutil.Process()
    assert value.sum() == numbers.sum()
    before = process.memory_info().shared

    drop_pages(value)
    drop_pages(numbers)

    assert before - process.memory_info().shared > numbers.nbytes / 2
    assert np.array_equal(value, numbers)
