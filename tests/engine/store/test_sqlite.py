"""What only a store on disk can get wrong: being killed, shared, damaged, or not ours at all."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import collage.store
from collage.store import BlobSpace, RecordKey, SqliteStore, StoredDocument, TuningRecord
from collage.store.errors import (
    DatabaseDamagedError,
    DatabaseError,
    DatabaseForeignError,
    DatabaseLockedError,
    DatabaseReadOnlyError,
    DatabaseVersionError,
)
from collage.store.sqlite.sqlite_schema import SCHEMA_VERSION
from tests.hardship import with_tests

KEY = RecordKey(structural_hash="h", target="t", fingerprint="f", host="cpu", threads=2, launch="eager", timing="t")
SPACE = BlobSpace(toolchain="t", fingerprint="f")
ROOT = Path(collage.store.__file__).parents[2]

# Writes one record after the other and says so after each; what was said must survive.
WRITER = """
import sys
from pathlib import Path
from collage.store import BlobSpace, RecordKey, SqliteStore, StoredDocument, TuningRecord
path, writer, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
key = RecordKey(structural_hash="h", target="t", fingerprint="f", host="cpu", threads=2, launch="eager", timing="t")
print("ready", flush=True)
with SqliteStore(path) as store:
    for number in range(count):
        store.begin_attempt(key)
        store.append_all([TuningRecord(
            key=key, outcome="measured", purpose="select", created="2026-01-01T00:00:00+00:00",
            samples_us=(float(number),), variant=writer, extra={"filler": "x" * 3000},
        )])
        store.put_blob(BlobSpace(toolchain="t", fingerprint="f"), writer, bytes(5000) + number.to_bytes(4, "big"))
        filler = {"number": number, "filler": "x" * 3000}
        store.put_stored(StoredDocument(kind="note", name=writer, version=1, body=filler))
        print(number, flush=True)
"""


def write_in_child(path: Path, writer: str, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), writer, str(count)],
        stdout=subprocess.PIPE,
        text=True,
        env=with_tests(),
    )


def record(sample_us: float = 1.0) -> TuningRecord:
    return TuningRecord(
        key=KEY,
        outcome="measured",
        purpose="select",
        created="2026-01-01T00:00:00+00:00",
        samples_us=(sample_us,),
    )


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_a_killed_process_loses_nothing_it_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "db"
    rng = random.Random(11)
    acknowledged: dict[str, int] = {}
    for run in range(3):
        child = write_in_child(path, str(run), 1_000_000)
        assert child.stdout is not None
        with child.stdout:
            assert child.stdout.readline() == "ready\n"
            said = [child.stdout.readline()] if run % 2 else []  # else it may hit the making of the file
            time.sleep(rng.uniform(0.0, 0.08))
            child.kill()
            said += child.stdout.read().splitlines()
        child.wait()
        acknowledged[str(run)] = len(said)

        with SqliteStore(path) as store:
            present = {(r.variant, r.samples_us[0]) for r in store.records(KEY) if r.extra["filler"]}
            for writer, count in acknowledged.items():
                assert all((writer, float(number)) in present for number in range(count))
                if count:
                    blob = store.get_blob(SPACE, writer)
                    assert blob is not None
                    assert int.from_bytes(blob[5000:], "big") >= count - 1
                    document = store.get_stored("note", writer)
                    assert document is not None
                    assert document.body["number"] >= count - 1
            assert store.attempts(KEY) >= sum(acknowledged.values())
    assert sum(acknowledged.values()) > 0
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


ATTEMPTER = """
import sys, time
from pathlib import Path
from collage.store import RecordKey, SqliteStore
key = RecordKey(structural_hash="h", target="t", fingerprint="f", host="cpu", threads=2, launch="eager", timing="t")
with SqliteStore(Path(sys.argv[1])) as store:
    store.begin_attempt(key)
    print(store.begin_attempt(key), flush=True)
    time.sleep(600)
"""


@pytest.mark.guards(
    "several runs over one database measure the same candidate at once",
    "what the others have begun is no sign of a death, and is not ended by this one; when they are killed it is",
    area="kills and databases",
)
def test_attempts_of_a_process_that_still_runs_are_its_own(tmp_path: Path) -> None:
    path = tmp_path / "db"
    command = [sys.executable, "-c", ATTEMPTER, str(path)]
    with (
        SqliteStore(path) as store,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=with_tests()) as it,
    ):
        assert it.stdout is not None
        try:
            assert it.stdout.readline() == "2\n"
            assert store.attempts(KEY) == 0
            assert store.begin_attempt(KEY) == 1
            store.clear_attempts(KEY)
            store.begin_attempt(KEY)
            store.append(record())
            assert store.attempts(KEY) == 0
            assert store.stats().open_attempts == 1
        finally:
            it.kill()
        it.wait()
        assert store.attempts(KEY) == 2

        store.append(record(2.0))

        assert store.stats().open_attempts == 0


def test_several_processes_make_and_write_one_database(tmp_path: Path) -> None:
    path = tmp_path / "db"
    children = [write_in_child(path, str(number), 25) for number in range(4)]
    for child in children:
        out, _ = child.communicate()
        assert (child.returncode, out.split()[-1]) == (0, "24")

    with SqliteStore(path) as store:
        assert len(store.records(KEY)) == 100
        assert store.attempts(KEY) == 100
        assert len(store.blob_keys()) == 4


def test_a_reader_does_not_wait_for_a_writer(tmp_path: Path) -> None:
    path = tmp_path / "db"
    with SqliteStore(path) as store:
        store.append(record())
    with SqliteStore(path, busy_timeout_s=0.05) as reader:
        writer = sqlite3.connect(path, isolation_level=None)
        writer.execute("BEGIN IMMEDIATE")
        assert reader.records(KEY) == (record(),)
        with pytest.raises(DatabaseLockedError, match="locked"):
            reader.append(record(2.0))
        writer.execute("ROLLBACK")
        writer.close()
        assert reader.append(record(2.0))


def test_a_locked_file_is_an_error_at_opening(tmp_path: Path) -> None:
    path = tmp_path / "db"
    SqliteStore(path).close()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    with pytest.raises(DatabaseLockedError):
        SqliteStore(path, busy_timeout_s=0.05)

    other.close()


@pytest.mark.parametrize("content", [b"hello\n", b"PK\x03\x04" + bytes(5000), bytes(4096)])
def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "db"
    path.write_bytes(content)

    with pytest.raises(DatabaseForeignError, match="not a SQLite database"):
        SqliteStore(path)

    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("application", [0, 7])
@pytest.mark.parametrize("journal", ["DELETE", "WAL"])
def test_a_database_of_another_program_is_left_alone(tmp_path: Path, application: int, journal: str) -> None:
    path = tmp_path / "db"
    foreign = sqlite3.connect(path)
    foreign.execute(f"PRAGMA journal_mode = {journal}")
    foreign.execute(f"PRAGMA application_id = {application}")
    foreign.execute("CREATE TABLE record (id)")
    foreign.commit()
    foreign.close()
    before = digest(path)

    with pytest.raises(DatabaseForeignError, match="another program"):
        SqliteStore(path)

    assert digest(path) == before


@pytest.mark.guards(
    "a database of a newer schema version; an export of another format version",
    "refused in one message that says what to do, byte for byte as before; nothing of the export is imported",
    area="kills and databases",
)
@pytest.mark.parametrize("version", [SCHEMA_VERSION + 1])
def test_a_database_of_another_version_is_refused_and_left_alone(version: int, tmp_path: Path) -> None:
    path = tmp_path / "db"
    SqliteStore(path).close()
    other = sqlite3.connect(path)
    other.execute(f"PRAGMA user_version = {version}")
    other.close()
    before = digest(path)

    every: list[dict[str, Any]] = [{}, {"read_only": True}, {"read_only": True, "salvage": True}]
    for options in every:
        with pytest.raises(DatabaseVersionError, match=f"schema version {version}, this .* Move it away to start"):
            SqliteStore(path, **options)

    assert digest(path) == before


def test_an_empty_file_becomes_a_database(tmp_path: Path) -> None:
    path = tmp_path / "db"
    path.touch()

    with SqliteStore(path) as store:
        assert store.append(record())


def filled(path: Path) -> None:
    with SqliteStore(path) as store:
        for sample in range(200):
            store.append(dataclasses.replace(record(float(sample)), extra={"filler": "x" * 500}))
        store.put_blob(SPACE, "k", bytes(20_000))


def test_a_truncated_database_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "db"
    filled(path)
    os.truncate(path, path.stat().st_size // 2 // 4096 * 4096)

    def read_all() -> None:
        with SqliteStore(path) as store:
            store.records(KEY)
            store.get_blob(SPACE, "k")
            store.stats()

    with pytest.raises(DatabaseDamagedError):
        read_all()


def test_altered_bytes_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "db"
    filled(path)
    rng = random.Random(1)
    whole = bytearray(path.read_bytes())
    with SqliteStore(path) as store:
        wanted = store.records(KEY)
    noticed = 0
    for _ in range(20):
        altered = bytearray(whole)
        for _ in range(200):
            altered[rng.randrange(4096, len(altered))] ^= 1 << rng.randrange(8)
        path.write_bytes(altered)
        try:
            with SqliteStore(path) as store:
                assert store.records(KEY) == wanted
                assert store.get_blob(SPACE, "k") == bytes(20_000)
        except DatabaseDamagedError:
            noticed += 1
    assert noticed == 20


@pytest.mark.guards("a record, or a toolchain's cached blob, in the database was altered")
def test_a_blob_that_was_altered_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "db"
    filled(path)
    other = sqlite3.connect(path)
    other.execute("UPDATE content SET data = x'00'")
    other.commit()
    other.close()

    with SqliteStore(path) as store, pytest.raises(DatabaseDamagedError, match="blob 'k' of t"):
        store.get_blob(SPACE, "k")


@pytest.mark.parametrize(
    "change", ["body = '{'", "body = '[]'", "body = x'ff'", "body = '[' || body", "version = 'two'"], ids=str
)
def test_a_document_that_was_altered_is_damaged(change: str, tmp_path: Path) -> None:
    path = tmp_path / "db"
    with SqliteStore(path) as store:
        store.put_stored(StoredDocument(kind="note", name="n", version=2, body={}))
    other = sqlite3.connect(path)
    other.execute(f"UPDATE document SET {change}")
    other.commit()
    other.close()

    with SqliteStore(path) as store, pytest.raises(DatabaseDamagedError, match="document note/n is damaged"):
        store.get_stored("note", "n")


def test_a_record_of_unknown_form_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "db"
    filled(path)
    other = sqlite3.connect(path)
    other.execute("UPDATE record SET body = '{}', content_id = ? WHERE id = 1", (
        hashlib.sha256(b"{}").hexdigest(),
    ))  # fmt: skip
    other.commit()
    other.close()

    with SqliteStore(path) as store, pytest.raises(DatabaseDamagedError, match="a record is damaged"):
        store.records(KEY)


def test_a_store_opened_for_reading_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "db"
    with SqliteStore(path) as store:
        store.append(record())

    with SqliteStore(path, read_only=True) as store:
        assert store.records(KEY) == (record(),)
        with pytest.raises(DatabaseReadOnlyError):
            store.append(record(2.0))


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anything")
def test_a_file_that_may_not_be_written_is_an_error_at_opening(tmp_path: Path) -> None:
    path = tmp_path / "db"
    SqliteStore(path).close()
    path.chmod(0o444)

    with pytest.raises(DatabaseReadOnlyError):
        SqliteStore(path)


def test_reading_makes_no_file(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match="no such file"):
        SqliteStore(tmp_path / "db", read_only=True)

    assert list(tmp_path.iterdir()) == []


def test_a_directory_is_no_database(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match="is a directory"):
        SqliteStore(tmp_path)


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(DatabaseReadOnlyError, match="cannot be made"):
        SqliteStore(tmp_path / "file" / "db")


def test_a_path_with_odd_characters_is_a_path(tmp_path: Path) -> None:
    path = tmp_path / "a b?mode=ro#%41.db"
    with SqliteStore(path) as store:
        store.append(record())

    assert path.exists()
