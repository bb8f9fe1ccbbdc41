"""A tuning database that cannot be used, as a user of the command line meets it: one message, and no byte changed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from collage.cli import main
from collage.store import BlobSpace, RecordKey, SqliteStore, TuningRecord, export_lines, open_database
from collage.store.sqlite.sqlite_schema import SCHEMA_VERSION
from tests.hardship import COMMAND, ORDINARY, run_python, small_disk
from tests.integration.commands.models import written

KEY = RecordKey(structural_hash="h", target="t", fingerprint="f", host="cpu", threads=2, launch="eager", timing="t")


def good(path: Path) -> None:
    with SqliteStore(path) as store:
        store.append_all(
            TuningRecord(
                key=KEY,
                outcome="measured",
                purpose="select",
                created="2026-01-01T00:00:00+00:00",
                samples_us=(float(sample),),
                extra={"filler": "x" * 500},
            )
            for sample in range(200)
        )
        store.put_blob(BlobSpace(toolchain="t", fingerprint="f"), "k", bytes(9000))


def garbage(path: Path) -> None:
    path.write_bytes(random.Random(0).randbytes(50_000))


def truncated(path: Path) -> None:
    good(path)
    path.write_bytes(path.read_bytes()[: -3 * 4096])


def torn(path: Path) -> None:
    good(path)
    path.write_bytes(path.read_bytes()[:-100])


def flipped(path: Path) -> None:
    good(path)
    data = bytearray(path.read_bytes())
    for start in range(2 * 4096, len(data), 4 * 4096):
        data[start : start + 8] = bytes(byte ^ 0xFF for byte in data[start : start + 8])
    path.write_bytes(data)


def foreign(path: Path) -> None:
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE bookmarks (url)")
    other.execute("INSERT INTO bookmarks VALUES ('https://example.com')")
    other.commit()
    other.close()


def newer(path: Path) -> None:
    good(path)
    other = sqlite3.connect(path)
    other.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    other.close()


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    good(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    yield
    other.close()


Fault = Callable[[Path], "contextlib.AbstractContextManager[None] | None"]

FAULTS: dict[str, tuple[Fault, str]] = {
    "garbage": (garbage, "it is not a SQLite database. Name another with --tuning-db"),
    "truncated": (truncated, "database disk image is malformed. Move it away to start afresh"),
    "torn": (torn, "its last page is cut short. Move it away to start afresh"),
    "flipped": (flipped, "Move it away to start afresh; `collage db export` saves what can still be read."),
    "foreign": (foreign, "it is a SQLite database of another program. Name another with --tuning-db"),
    "newer": (
        newer,
        f"it has schema version {SCHEMA_VERSION + 1}, this Collage reads up to {SCHEMA_VERSION}. Move it away to start",
    ),
    "locked": (locked, "database is locked. End that process, or try again."),
    "a folder": (Path.mkdir, "it is a directory. Name another with --tuning-db"),
}


@pytest.fixture
def export(tmp_path: Path) -> Path:
    good(tmp_path / "source")
    with open_database(tmp_path / "source") as store:
        (tmp_path / "all.jsonl").write_text("".join(f"{line}\n" for line in export_lines(store)))
    return tmp_path / "all.jsonl"


def collage(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def contents(folder: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir() if file.is_file()}


@pytest.mark.guards(
    "a database is garbage, truncated, has pages flipped, is another program's, of a newer schema, "
    "locked, a folder; on `optimize`, `db import`, `db merge`",
    "one message, status 1, no traceback, every byte as before",
    area="kills and databases",
)
@pytest.mark.parametrize("command", ["optimize", "db import", "db merge"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_database_that_cannot_be_used_is_one_message_and_stays_as_it_is(
    fault: str, command: str, export: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    defaults = SqliteStore.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "busy_timeout_s", 0.2)
    make, message = FAULTS[fault]
    folder = tmp_path / "databases"
    folder.mkdir()
    database = folder / "tuning.sqlite3"
    arguments: dict[str, tuple[object, ...]] = {
        "optimize": (written("cnn", tmp_path), "-o", tmp_path / "out.collage", "--toolchains", "reference"),
        "db import": (export,),
        "db merge": (export.with_name("source"),),
    }

    with make(database) or contextlib.nullcontext():
        before = contents(folder)
        result = collage(*command.split(), *arguments[command], "--tuning-db", database)
        after = contents(folder)

    said = " ".join(result.stderr.split())
    assert result.exit_code == 1
    assert said.count("Error: ") == 1
    assert f"Error: cannot use the tuning database 'sqlite:///{database}': " in said
    assert message in said
    assert "itself failed" not in said
    assert result.stdout == ""
    assert {name: after[name] for name in before} == before
    assert fault == "locked" or set(after) == set(before)
    assert not (tmp_path / "out.collage").exists()


@pytest.mark.guards("`--tuning-db` names no database", "status 2", area="kills and databases")
def test_an_impossible_name_is_misuse(tmp_path: Path) -> None:
    model = written("cnn", tmp_path)

    result = collage("optimize", model, "-o", tmp_path / "out.collage", "--tuning-db", "http://x/y")

    assert result.exit_code == 2
    assert "it is not sqlite:///PATH, postgresql://..., a path, @FILE or memory:" in " ".join(result.stderr.split())


@pytest.mark.guards(
    "the database's file or its folder is read-only",
    "one message, status 1, bytes as before; `db stats` still reads it",
    area="kills and databases",
)
@pytest.mark.parametrize(("file", "folder"), [(0o444, 0o755), (0o644, 0o555)])
def test_a_database_that_may_not_be_written_is_one_message_and_can_still_be_read(
    file: int, folder: int, tmp_path: Path
) -> None:
    place = tmp_path / "databases"
    place.mkdir()
    database = place / "tuning.sqlite3"
    good(database)
    model = written("cnn", tmp_path)
    before = contents(place)
    database.chmod(file)
    place.chmod(folder)
    try:
        tried = run_python(
            ORDINARY + COMMAND,
            *("optimize", model, "-o", tmp_path / "out.collage", "--toolchains", "reference", "--tuning-db", database),
        )
        read = run_python(ORDINARY + COMMAND, "db", "stats", "--tuning-db", database)
    finally:
        place.chmod(0o755)

    assert tried.returncode == 1
    assert "cannot use the tuning database" in tried.stderr
    assert "Name another with --tuning-db, or COLLAGE_TUNING_DB." in " ".join(tried.stderr.split())
    assert "itself failed" not in tried.stderr
    assert read.returncode == 0, read.stderr
    assert "200 records" in read.stdout
    assert contents(place)["tuning.sqlite3"] == before["tuning.sqlite3"]


FULL = """
import hashlib, json, os, sys
from pathlib import Path
from click.testing import CliRunner
from collage.cli import main
from tests.integration.commands.test_database_faults import good
disk, model, out = map(Path, sys.argv[1:])
database = disk / "tuning.sqlite3"
good(database)
with (disk / "filler").open("wb", buffering=0) as filler:
    try:
        while filler.write(bytes(4096)) == 4096:
            pass
    except OSError:
        pass
def digest():
    return hashlib.sha256(database.read_bytes()).hexdigest()
before = digest()
arguments = ["optimize", model, "-o", out, "--toolchains", "reference", "--tuning-db", database]
result = CliRunner().invoke(main, list(map(str, arguments)))
print(json.dumps([result.exit_code, result.stderr, digest() == before]))
"""


@pytest.mark.guards(
    "the database's disk is full (a real small disk)",
    "one message, status 1, bytes as before",
    area="kills and databases",
)
def test_a_full_disk_is_one_message(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    model = written("cnn", tmp_path)

    done = run_python(FULL, disk, model, tmp_path / "out.collage", prefix=small_disk(disk, 1000))

    assert done.returncode == 0, done.stderr
    status, said, same = json.loads(done.stdout)
    said = " ".join(said.split())
    assert status == 1
    assert "Error: cannot use the tuning database" in said
    assert "Make room on its disk, or name another with --tuning-db" in said
    assert "itself failed" not in said
    assert same


@pytest.mark.guards("saving what is left of a damaged database")
def test_what_is_left_of_a_damaged_database_can_be_exported_and_imported(tmp_path: Path) -> None:
    database = tmp_path / "tuning.sqlite3"
    truncated(database)
    before = contents(tmp_path)

    saved = collage("db", "export", "-o", tmp_path / "rest.jsonl", "--tuning-db", database)
    imported = collage("db", "import", tmp_path / "rest.jsonl", "--tuning-db", tmp_path / "new.sqlite3")

    assert saved.exit_code == 1
    assert "is damaged: " in saved.stderr
    assert "could not be read and is not in the export" in " ".join(saved.stderr.split())
    assert imported.exit_code == 0, imported.stderr
    assert contents(tmp_path)["tuning.sqlite3"] == before["tuning.sqlite3"]
    with open_database(tmp_path / "new.sqlite3") as store:
        assert 0 < store.stats().records <= 200
