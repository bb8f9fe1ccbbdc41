"""Files that older versions wrote, as they wrote them, are brought up to date: `older/` has a dump of one of each.

Each has a key with two measurements and a refusal, an attempt, a cached file, and from version 3 on a document.
"""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
from pathlib import Path

import pytest

from collage.store import BlobSpace, SqliteStore, StoredDocument
from collage.store.errors import DatabaseError, DatabaseReadOnlyError
from collage.store.sqlite.sqlite_schema import SCHEMA_VERSION

OLDER = Path(__file__).parent / "older"
VERSIONS = range(1, SCHEMA_VERSION)
SPACE = BlobSpace(toolchain="t", fingerprint="f 1.0")


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def path(version: int, tmp_path: Path) -> Path:
    with contextlib.closing(sqlite3.connect(tmp_path / "db")) as connection:
        connection.executescript((OLDER / f"{version}.sql").read_text(encoding="utf-8"))
    return tmp_path / "db"


def check(store: SqliteStore, version: int) -> None:
    records = list(store.all_records())
    assert [record.samples_us for record in records] == [(10.0, 11.0), (11.0, 12.0), ()]
    assert [(record.outcome, record.purpose) for record in records] == [
        ("measured", "select"),
        ("measured", "confirm"),
        ("refused", "select"),
    ]
    [key] = {record.key for record in records}
    assert (key.structural_hash, key.target, key.fingerprint, key.threads) == ("h", "t", "f 1.0", 2)
    assert (key.timing, key.plugin) == ("blocks 2" if version >= 4 else "unknown", "p 1" if version >= 5 else "")
    assert store.records(key) == tuple(records)
    assert store.get_blob(SPACE, "k") == b"cached"
    assert store.stats().open_attempts == 0
    note = StoredDocument(kind="note", name="n", version=1, body={"x": 1})
    assert store.get_stored("note", "n") == (note if version >= 3 else None)


def test_a_file_of_an_older_version_is_brought_up_to_date(path: Path, version: int) -> None:
    for _ in range(2):
        with SqliteStore(path) as store:
            check(store, version)
            store.put_blob(SPACE, "l", b"new")

    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    with SqliteStore(path.with_name("new")):
        pass
    with contextlib.closing(sqlite3.connect(path.with_name("new"))) as connection:
        assert tables == {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def test_opened_for_reading_it_stays_as_it_is(path: Path, version: int) -> None:
    before = hashlib.sha256(path.read_bytes()).hexdigest()

    with SqliteStore(path, read_only=True) as store:
        check(store, version)
        with pytest.raises(DatabaseReadOnlyError):
            store.put_blob(SPACE, "l", b"new")

    assert hashlib.sha256(path.read_bytes()).hexdigest() == before
    assert list(path.parent.iterdir()) == [path]


def test_what_cannot_be_brought_up_to_date_stays_as_it_was(
    path: Path, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(connection: sqlite3.Connection, body: str) -> None:
        raise sqlite3.OperationalError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr("collage.store.sqlite.sqlite_schema._keep", fails)
        with pytest.raises(DatabaseError, match="disk is full"):
            SqliteStore(path)

    with SqliteStore(path) as store:
        check(store, version)
