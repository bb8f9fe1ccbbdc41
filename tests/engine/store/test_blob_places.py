"""Where bytes of large blobs are: a folder, or what fsspec reaches; a place that fails costs a warning."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from collage.store import BlobSpace, SqliteStore
from collage.store.blobs.blob_bucket import BlobBucket
from collage.store.blobs.blob_files import BlobFiles, BlobFolder, UnkeptBlobWarning
from collage.store.errors import DatabaseNameError

Make: TypeAlias = Callable[[Path], BlobFiles]
SPACE = BlobSpace(toolchain="t", fingerprint="f")
LARGE = b"large" * 100


def folder(path: Path) -> BlobFiles:
    return BlobFolder(path / "blobs", least_bytes=100)


def bucket(path: Path) -> BlobFiles:
    pytest.importorskip("fsspec")
    return BlobBucket(f"memory://{uuid.uuid4().hex}", least_bytes=100)


@pytest.mark.parametrize("make", [folder, bucket])
def test_large_bytes_are_there_and_small_ones_in_the_database(make: Make, tmp_path: Path) -> None:
    files = make(tmp_path)
    with SqliteStore(tmp_path / "db", files=files) as store:
        store.put_blob(SPACE, "large", LARGE)
        store.put_blob(SPACE, "small", b"small")
    with SqliteStore(tmp_path / "db", files=files) as store:
        assert store.get_blob(SPACE, "large") == LARGE
        assert store.get_blob(SPACE, "small") == b"small"
    with SqliteStore(tmp_path / "db") as store:  # who does not know where they are finds none
        assert store.get_blob(SPACE, "large") is None
        assert store.get_blob(SPACE, "small") == b"small"


@pytest.mark.parametrize("make", [folder, bucket])
def test_the_place_of_bytes_changes_with_who_puts_them(make: Make, tmp_path: Path) -> None:
    files = make(tmp_path)
    with SqliteStore(tmp_path / "db", files=files) as store:
        store.put_blob(SPACE, "k", LARGE)
    with SqliteStore(tmp_path / "db") as store:
        store.put_blob(SPACE, "k", LARGE)
        assert store.get_blob(SPACE, "k") == LARGE
    with SqliteStore(tmp_path / "db", files=files) as store:
        store.put_blob(SPACE, "k", LARGE)
        assert store.get_blob(SPACE, "k") == LARGE
        store.put_blob(SPACE, "k", b"small")
        assert store.get_blob(SPACE, "k") == b"small"


def test_a_folder_that_cannot_be_written_costs_a_warning(tmp_path: Path) -> None:
    (tmp_path / "blobs").write_text("no folder")
    with SqliteStore(tmp_path / "db", files=folder(tmp_path)) as store:
        with pytest.warns(UnkeptBlobWarning, match="is not kept in"):
            store.put_blob(SPACE, "k", LARGE)

        assert store.get_blob(SPACE, "k") is None


def test_an_object_store_that_fails_costs_a_warning_without_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = pytest.importorskip("fsspec.implementations.memory")

    def fails(*_: object, **__: object) -> None:
        raise OSError("the token has expired")

    monkeypatch.setattr(memory.MemoryFileSystem, "pipe_file", fails)
    files = BlobBucket("memory://user:hush@place/folder?key=hush", least_bytes=100)
    with SqliteStore(tmp_path / "db", files=files) as store:
        with pytest.warns(UnkeptBlobWarning, match="memory://place/folder: the token has expired"):
            store.put_blob(SPACE, "k", LARGE)

        assert store.get_blob(SPACE, "k") is None


def test_a_kind_of_url_that_nothing_installed_knows_is_said_when_it_is_needed(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    with SqliteStore(tmp_path / "db", files=BlobBucket("nowhere://place", least_bytes=100)) as store:
        store.put_blob(SPACE, "k", b"small")
        with pytest.raises(DatabaseNameError, match=r"pip install 'collage-engine\[objects\]'"):
            store.put_blob(SPACE, "k", LARGE)
