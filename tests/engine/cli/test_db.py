"""`collage db`, over real databases."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from collage.store import BlobSpace, RecordKey, StoredDocument, TuningRecord, open_database
from tests.engine.cli.conftest import FakePipeline
from tests.valid_json import valid

Collage = Callable[..., Result]


def record(fingerprint: str, target: str = "openvino") -> TuningRecord:
    key = RecordKey(
        structural_hash="ab", target=target, fingerprint=fingerprint, host="h", threads=2, launch="eager", timing="t"
    )
    return TuningRecord(
        key=key, outcome="measured", purpose="select", created="2026-01-02T03:04:05+00:00", samples_us=(1.0, 2.0)
    )


@pytest.fixture
def tuning_db(tmp_path: Path) -> Path:
    path = tmp_path / "tuning.sqlite3"
    with open_database(path) as store:
        store.append(record("openvino 2026.4.1"))
        store.append(record("openvino 2025.1.0"))
        store.append(record("openvino 2026.4.10"))  # which the version installed is the beginning of
        store.append(record("onnxruntime 1.31.1 + openvino 2026.4.1", target="collage"))
        store.put_blob(BlobSpace(toolchain="openvino", fingerprint="openvino 2025.1.0"), "cache", b"bytes")
        store.put_stored(StoredDocument(kind="dispatch", name="here", version=1, body={"dispatch_us": 0.1}))
    return path


def test_stats(collage: Collage, tuning_db: Path) -> None:
    result = collage("db", "stats", "--tuning-db", tuning_db, "--json", "stats.json")

    assert result.exit_code == 0, result.output
    assert "4 records of 4 candidates; 1 document; 1 cached file" in " ".join(result.stdout.split())
    assert valid("db-stats", Path("stats.json").read_text())["by_target"] == {"collage": 1, "openvino": 3}


def test_an_export_can_be_imported_elsewhere_and_again(collage: Collage, tuning_db: Path) -> None:
    assert collage("db", "export", "-o", "all.jsonl", "--tuning-db", tuning_db).exit_code == 0

    first = collage("db", "import", "all.jsonl", "--tuning-db", "other.sqlite3", "--cached-files")
    piped = collage("db", "export", "--tuning-db", tuning_db)
    again = collage("db", "import", "-", "--tuning-db", "other.sqlite3", stdin=piped.stdout)

    assert "4 new records, 0 known already, 1 new cached file, 1 new document" in first.stdout
    assert "0 new records, 4 known already" in again.stdout


@pytest.mark.guards(
    "cached files, which may be compiled code, in an export or a database of others",
    "left out, unless the user asks for them",
    area="packages and files",
)
@pytest.mark.parametrize("command", ["import", "merge"])
def test_cached_files_of_others_are_left_out_unless_they_are_asked_for(
    command: str, collage: Collage, tuning_db: Path
) -> None:
    assert collage("db", "export", "-o", "all.jsonl", "--tuning-db", tuning_db).exit_code == 0
    source = "all.jsonl" if command == "import" else tuning_db

    plain = collage("db", command, source, "--tuning-db", "other.sqlite3")
    with open_database("other.sqlite3") as store:
        without = store.blob_keys()
    asked = collage("db", command, source, "--tuning-db", "other.sqlite3", "--cached-files")

    assert "0 new cached files, 1 new document; 1 cached file left out (--cached-files)" in plain.stdout
    assert without == ()
    assert "0 new records, 4 known already, 1 new cached file" in asked.stdout
    assert "left out" not in asked.stdout
    with open_database("other.sqlite3") as store:
        assert len(store.blob_keys()) == 1


def test_an_endless_stream_is_no_export(collage: Collage) -> None:
    result = collage("db", "import", "/dev/zero", "--tuning-db", "other.sqlite3")

    assert result.exit_code == 1
    assert "its first line is not the header of an export" in result.stderr


@pytest.mark.guards("a database of a newer schema version; an export of another format version")
@pytest.mark.parametrize("version", [2, 5])
def test_an_export_of_another_version_is_one_message(collage: Collage, tuning_db: Path, version: int) -> None:
    assert collage("db", "export", "-o", "all.jsonl", "--tuning-db", tuning_db).exit_code == 0
    _, *lines = Path("all.jsonl").read_text().splitlines()
    Path("all.jsonl").write_text("\n".join([json.dumps({"format": "collage-tuning", "version": version}), *lines]))

    done = collage("db", "import", "all.jsonl", "--tuning-db", "other.sqlite3")

    assert done.exit_code == 1
    assert f"it has format version {version}, this Collage reads 4. Import it with the version that wrote it" in (
        " ".join(done.stderr.split())
    )
    with open_database("other.sqlite3") as store:
        assert store.stats().records == 0


def test_merge(collage: Collage, tuning_db: Path) -> None:
    result = collage("db", "merge", tuning_db, "--tuning-db", "mine.sqlite3")

    assert result.exit_code == 0, result.output
    assert "4 new records" in result.stdout


def test_gc_removes_versions_not_installed_and_keeps_mixed_plans(
    collage: Collage, pipeline: FakePipeline, tuning_db: Path
) -> None:
    tried = collage("db", "gc", "--dry-run", "--tuning-db", tuning_db)
    done = collage("db", "gc", "--yes", "--tuning-db", tuning_db)
    again = collage("db", "gc", "--yes", "--tuning-db", tuning_db)

    assert tried.stdout == (
        "It belongs to: openvino 2025.1.0, openvino 2026.4.10\nTo be removed: 2 records, 1 cached file\n"
    )
    assert "removed 2 records, 1 cached file from sqlite:///" in done.stdout
    assert "Nothing to remove" in again.stdout


def test_gc_asks_first(collage: Collage, pipeline: FakePipeline, tuning_db: Path) -> None:
    result = collage("db", "gc", "--tuning-db", tuning_db, stdin="n\n")

    assert result.exit_code == 1
    with open_database(tuning_db) as store:
        assert store.stats().records == 4


def test_gc_keeps_what_it_is_told_to(collage: Collage, pipeline: FakePipeline, tuning_db: Path) -> None:
    old = ("--keep", "openvino 2025.1.0", "--keep", "openvino 2026.4.10")
    result = collage("db", "gc", *old, "--tuning-db", tuning_db)

    assert "Nothing to remove" in result.stdout


def test_gc_removes_what_another_version_of_the_plugin_failed_at(
    collage: Collage, pipeline: FakePipeline, tmp_path: Path
) -> None:
    path, measured = tmp_path / "versions.sqlite3", record("openvino 2026.4.1")

    def of(plugin: str, *, works: bool) -> TuningRecord:
        key = dataclasses.replace(measured.key, plugin=plugin)
        if works:
            return dataclasses.replace(measured, key=key)
        return dataclasses.replace(measured, key=key, outcome="failed", samples_us=(), reason="wrong numbers")

    with open_database(path) as store:
        store.append_all([of("p 1", works=False), of("p 2", works=True)])
        store.begin_attempt(of("p 1", works=False).key)
    kept = collage("db", "gc", "--yes", "--keep", "p 1", "--tuning-db", path)
    done = collage("db", "gc", "--yes", "--tuning-db", path)

    assert "Nothing to remove" in kept.stdout
    assert "It belongs to: p 1\n" in done.stdout
    assert "removed 1 record, 1 unfinished attempt from" in done.stdout
    with open_database(path) as store:
        assert [each.key.plugin for each in store.all_records()] == ["p 2"]


def test_forget_removes_what_is_known_of_a_target(collage: Collage, tuning_db: Path) -> None:
    tried = collage("db", "forget", "openvino", "--dry-run", "--tuning-db", tuning_db)
    refused = collage("db", "forget", "openvino", "--tuning-db", tuning_db, stdin="n\n")
    done = collage("db", "forget", "openvino", "--yes", "--tuning-db", tuning_db)
    again = collage("db", "forget", "collag", "--yes", "--tuning-db", tuning_db)

    assert tried.stdout == "To be removed: 3 records, 1 cached file\n"
    assert refused.exit_code == 1
    assert "removed 3 records, 1 cached file from sqlite:///" in done.stdout
    assert again.exit_code == 0
    assert "knows nothing of collag; did you mean" in again.stdout
    with open_database(tuning_db) as store:
        assert [each.key.target for each in store.all_records()] == ["collage"]


def test_forgetting_what_cannot_be_known_is_misuse(collage: Collage, tuning_db: Path) -> None:
    done = collage("db", "forget", "missing/model.onnx", "--yes", "--tuning-db", tuning_db)

    assert done.exit_code == 2
    assert "there is no file 'missing/model.onnx', and it is no target either" in " ".join(done.stderr.split())


def test_a_database_that_is_not_there_is_an_error(collage: Collage) -> None:
    result = collage("db", "stats", "--tuning-db", "missing.sqlite3")

    assert result.exit_code == 1
    assert "missing.sqlite3" in result.stderr
