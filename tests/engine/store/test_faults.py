"""Databases that are damaged, on full disks or out of reach: said once, clearly, and nothing is made worse."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from collage.store import (
    BlobSpace,
    MemoryStore,
    RecordKey,
    SqliteStore,
    StoredDocument,
    TuningRecord,
    export_lines,
    import_lines,
    open_database,
)
from collage.store.errors import DatabaseDamagedError, DatabaseDiskError, DatabaseError, DatabaseNameError
from collage_core.errors import UsageError
from tests.hardship import ORDINARY, files_up_to, run_python, small_disk

KEY = RecordKey(structural_hash="h", target="t", fingerprint="f", host="cpu", threads=2, launch="eager", timing="t")
SPACE = BlobSpace(toolchain="t", fingerprint="f")
PAGE = 4096
TABLE_LEAF = 13
"""First byte of a page that holds rows (https://www.sqlite.org/fileformat2.html#b_tree_pages)."""


def record(sample_us: float = 1.0) -> TuningRecord:
    return TuningRecord(
        key=KEY,
        outcome="measured",
        purpose="select",
        created="2026-01-01T00:00:00+00:00",
        samples_us=(sample_us,),
        extra={"filler": "x" * 500},
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database of 200 records, a blob and a document."""
    with SqliteStore(tmp_path / "db") as store:
        store.append_all([record(float(sample)) for sample in range(200)])
        store.put_blob(SPACE, "k", bytes(20_000))
        store.put_stored(StoredDocument(kind="note", name="p", version=1, body={"regions": [1]}))
    return tmp_path / "db"


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2 // PAGE * PAGE)


def torn(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 100)


def flipped(path: Path) -> None:
    """Bits turned over at the start of every fourth page: where a page says what it holds."""
    data = bytearray(path.read_bytes())
    draw = random.Random(1)
    for start in range(2 * PAGE, len(data), 4 * PAGE):
        for _ in range(8):
            data[start + draw.randrange(12)] ^= 1 << draw.randrange(8)
    path.write_bytes(data)


def zeroed(path: Path) -> None:
    """A page of a table that never reached the disk."""
    data = bytearray(path.read_bytes())
    leaf = next(start for start in range(10 * PAGE, len(data), PAGE) if data[start] == TABLE_LEAF)
    data[leaf : leaf + PAGE] = bytes(PAGE)
    path.write_bytes(data)


@pytest.mark.guards(
    "half a database, one cut within its last page, pages flipped, a page of zeros",
    "not opened for writing; byte for byte as before",
    area="kills and databases",
)
@pytest.mark.parametrize("damage", [half, torn, flipped, zeroed])
def test_a_damaged_database_is_not_opened_for_writing_and_stays_as_it_is(
    path: Path, damage: Callable[[Path], None]
) -> None:
    damage(path)
    before = digest(path)

    with pytest.raises(DatabaseDamagedError, match="Move it away to start afresh; `collage db export` saves"):
        SqliteStore(path)

    assert digest(path) == before
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.guards(
    "saving what is left of a damaged database",
    "`collage db export` writes what can be read, says what is missing, status 1; it can be imported",
    area="kills and databases",
)
@pytest.mark.parametrize("damage", [half, flipped, zeroed])
def test_what_can_still_be_read_of_a_damaged_database_can_be_saved(path: Path, damage: Callable[[Path], None]) -> None:
    damage(path)
    before, lost = digest(path), list[DatabaseError]()

    with SqliteStore(path, read_only=True, salvage=True) as store:
        lines = list(export_lines(store, damaged=lost.append))

    assert lost
    assert all(isinstance(error, DatabaseDamagedError) for error in lost)
    assert digest(path) == before
    with MemoryStore() as rescued:
        import_lines(rescued, lines)
        saved = rescued.records(KEY)
    assert len(saved) >= 50
    assert {each.samples_us[0] for each in saved} <= set(map(float, range(200)))


@pytest.mark.guards(
    "a record, or a toolchain's cached blob, in the database was altered",
    "found by its checksum; left out of an export",
    area="kills and databases",
)
def test_a_record_that_was_altered_is_left_out_of_what_is_saved(path: Path) -> None:
    other = sqlite3.connect(path)
    other.execute("UPDATE record SET body = replace(body, '17.0', '99.0') WHERE id = 18")
    other.execute("UPDATE content SET data = x'00'")
    other.commit()
    other.close()
    lost: list[DatabaseError] = []

    with SqliteStore(path, read_only=True, salvage=True) as store:
        lines = [json.loads(line) for line in export_lines(store, damaged=lost.append)]
        with pytest.raises(DatabaseDamagedError):
            list(export_lines(store))

    assert [error.reason for error in lost] == [
        "a record is damaged: its checksum is wrong",
        "blob 'k' of t is not what was put there",
    ]
    assert len([line for line in lines if "record" in line]) == 199
    assert [line["document"]["name"] for line in lines if "document" in line] == ["p"]


def fill_until_refused(store: SqliteStore) -> tuple[int, DatabaseError]:
    """Records that were acknowledged before one was not."""
    for number in range(100_000):
        try:
            store.append(record(1000.0 + number))
        except DatabaseError as error:
            return number, error
    raise AssertionError("there is no end to this disk")


@pytest.mark.guards("disk fills up while records are added; a limit on file size does")
def test_a_file_that_may_not_grow_costs_the_record_that_did_not_fit_and_no_other(path: Path) -> None:
    with SqliteStore(path) as store, files_up_to(path.stat().st_size + 50_000):
        kept, error = fill_until_refused(store)
        assert len(store.records(KEY)) == 200 + kept

    assert kept > 0
    assert isinstance(error, DatabaseDiskError)
    assert "Make room on its disk" in str(error)
    with SqliteStore(path) as store:
        assert len(store.records(KEY)) == 200 + kept
        assert store.append(record(0.5))


FILL = """
import json, sys
from pathlib import Path
from collage.store import SqliteStore
from tests.engine.store.test_faults import KEY, fill_until_refused
path = Path(sys.argv[1])
spare = path.with_name("spare")
spare.write_bytes(bytes(100_000))
with SqliteStore(path) as store:
    kept, error = fill_until_refused(store)
spare.unlink()  # as a user would make room
with SqliteStore(path) as store:
    print(json.dumps([kept, len(store.records(KEY)), type(error).__name__, str(error)]))
"""


@pytest.mark.guards(
    "disk fills up while records are added; a limit on file size does",
    "the record that did not fit is refused, all acknowledged ones stay",
    area="kills and databases",
)
def test_a_full_disk_costs_the_record_that_did_not_fit_and_no_other(tmp_path: Path) -> None:
    done = run_python(FILL, tmp_path / "db", prefix=small_disk(tmp_path, 400))

    assert done.returncode == 0, done.stderr
    kept, found, kind, message = json.loads(done.stdout)
    assert kept == found > 0
    assert kind == "DatabaseDiskError"
    assert "full" in message


READ = """
import sys
from pathlib import Path
from collage.store import SqliteStore
from collage.store.errors import DatabaseError
for path, to in zip(sys.argv[1::2], sys.argv[2::2]):
    try:
        with SqliteStore(Path(path), read_only=to == "read") as store:
            print(store.stats().records)
    except DatabaseError as error:
        print(type(error).__name__, error.reason)
"""
"""Opens databases one after the other, to read or to write each."""


PERMITTED = (
    ((0o444, 0o755), "write", "DatabaseReadOnlyError the file cannot be written"),
    ((0o644, 0o555), "write", "DatabaseReadOnlyError its directory"),
    ((0o000, 0o755), "read", "DatabaseError it cannot be read: [Errno 13] Permission denied"),
    ((0o444, 0o755), "read", "200"),
    ((0o444, 0o555), "read", "200"),
)
"""Permissions of a file and of its folder, what is tried, and what is said."""


def test_permissions_decide_what_can_be_done(path: Path, tmp_path: Path) -> None:
    """In one process, whose start takes most of the time."""
    before, tried = digest(path), list[tuple[Path, str]]()
    for number, ((file, folder), to, _) in enumerate(PERMITTED):
        (place := tmp_path / str(number)).mkdir()
        tried.append((Path(shutil.copy(path, place)), to))
        tried[-1][0].chmod(file)
        place.chmod(folder)
    try:
        done = run_python(ORDINARY + READ, *itertools.chain.from_iterable(tried))
    finally:
        for copy, _ in tried:
            copy.parent.chmod(0o755)
            copy.chmod(0o644)

    for line, (_, _, answer) in zip(done.stdout.splitlines(), PERMITTED, strict=True):
        assert line.startswith(answer), done.stdout + done.stderr
    assert [digest(copy) for copy, _ in tried] == [before] * len(PERMITTED)


def test_a_database_cannot_be_made_in_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    try:
        done = run_python(ORDINARY + READ, tmp_path / "db", "write")
    finally:
        tmp_path.chmod(0o755)

    assert done.stdout == f"DatabaseReadOnlyError its directory {str(tmp_path)!r} cannot be written\n", done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_names_no_database_is_misuse() -> None:
    with pytest.raises(DatabaseNameError) as caught:
        open_database("mysql://x")

    assert isinstance(caught.value, UsageError)
