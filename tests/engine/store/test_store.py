"""The contract of a tuning store over those that need no server, and what stands on it."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collage.store import (
    MemoryStore,
    RecordKey,
    Removal,
    SqliteStore,
    StoredDocument,
    TuningRecord,
    TuningStore,
    export_lines,
    import_lines,
)
from collage.store.blobs.blob_files import BlobFolder
from collage.store.blobs.own_trust import OwnTrust
from collage.store.errors import DatabaseDamagedError, DatabaseError, ExportVersionError
from collage_testing.kit.tuning_stores import KEY, SPACE, Note, TuningStoreConformance, fill, measured


def memory(folder: Path) -> TuningStore:
    return MemoryStore()


def sqlite(folder: Path) -> TuningStore:
    return SqliteStore(folder / "deep" / "db")


def with_files(folder: Path) -> TuningStore:
    return SqliteStore(folder / "db", files=BlobFolder(folder / "blobs", least_bytes=3))


def of_two(folder: Path) -> TuningStore:
    return OwnTrust(SqliteStore(folder / "shared"), lambda: SqliteStore(folder / "own"))


@pytest.fixture(params=[memory, sqlite, with_files, of_two])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TuningStore]:
    with request.param(tmp_path) as store:
        yield store


class TestTuningStore(TuningStoreConformance):
    """Every store keeps the contract."""


class TestTransfer:
    def test_records_of_an_export_without_versions_of_plugins_are_of_an_unknown_one(self, store: TuningStore) -> None:
        header, *lines = export_lines(store_of(measured(key=dataclasses.replace(KEY, plugin="p 1"))))
        lines = [line.replace(',"plugin":"p 1"', "") for line in lines]

        import_lines(store, [header.replace("4", "3"), *lines])

        assert [record.key for record in store.all_records()] == [KEY]

    @pytest.mark.guards(
        "what an import or a later version left in the database is not understood; JSON nested without end"
    )
    @pytest.mark.parametrize(
        "body",
        [
            {"text": 1},
            {"text": None},
            {"limit": "1.5"},
            {"limit": True},
            {"limit": -1.0},
            {"lines": [[1, 2.0, 3.0]]},
            {"lines": [[1.5, 2.0]]},
            {"names": ["a"]},
            {"more": 1},
        ],
        ids=str,
    )
    def test_a_document_that_is_not_understood_is_not_there_and_stays(
        self, store: TuningStore, body: dict[str, Any]
    ) -> None:
        stored = StoredDocument(kind="note", name="n", version=2, body=body)
        store.put_stored(stored)

        assert store.get_document(Note, "n") is None
        assert store.get_stored("note", "n") == stored

    @pytest.mark.guards(
        "what an import or a later version left in the database is not understood; JSON nested without end"
    )
    @pytest.mark.parametrize("damaged", ["half a record", "[" * 200_000, '{"record":' * 200_000])
    def test_a_damaged_line_stops_an_import_after_what_came_before(self, store: TuningStore, damaged: str) -> None:
        with MemoryStore() as source:
            fill(source)
            header, first, second, *_ = export_lines(source)

        with pytest.raises(DatabaseDamagedError, match="line 3"):
            import_lines(store, [header, first, second[:-4] if damaged == "half a record" else damaged])

        assert len(store.records(KEY)) == 1

    @pytest.mark.parametrize(
        ("header", "error"),
        [
            ("", DatabaseDamagedError),
            ('{"format":"other","version":1}', DatabaseDamagedError),
            ('{"format":"collage-tuning","version":2}', ExportVersionError),
            ('{"format":"collage-tuning","version":5}', ExportVersionError),
        ],
    )
    def test_what_is_no_export_is_refused(self, store: TuningStore, header: str, error: type[DatabaseError]) -> None:
        with pytest.raises(error):
            import_lines(store, [header])


def store_of(*records: TuningRecord) -> TuningStore:
    store = MemoryStore()
    store.append_all(records)
    return store


keys = st.builds(
    RecordKey,
    structural_hash=st.sampled_from("xy"),
    target=st.just("t"),
    fingerprint=st.sampled_from(["f", "g"]),
    host=st.just("h"),
    threads=st.just(1),
    launch=st.just("eager"),
    timing=st.just("t"),
    plugin=st.sampled_from(["", "p 1"]),
)
numbers = st.floats(allow_nan=False, allow_infinity=False)
notes = st.builds(
    Note,
    text=st.text(),
    limit=st.none() | st.floats(min_value=0, allow_infinity=False),
    lines=st.lists(st.tuples(st.integers(), numbers), max_size=3).map(tuple),
    names=st.dictionaries(st.text(), st.text(), max_size=3),
)
json_objects = st.dictionaries(
    st.sampled_from(["text", "limit", "lines", "names", "more"]),
    st.recursive(st.none() | st.booleans() | st.integers() | numbers | st.text(), st.lists, max_leaves=4),
)
steps = st.one_of(
    st.tuples(st.just("append"), keys, st.sampled_from([1.0, 2.0]), st.sampled_from(["select", "confirm"])),
    st.tuples(st.just("attempt"), keys),
    st.tuples(st.just("clear"), keys, st.booleans()),
    st.tuples(st.just("blob"), st.sampled_from("kl"), st.binary(max_size=4)),
    st.tuples(st.just("document"), st.sampled_from("kl"), notes),
    st.tuples(st.just("stored"), st.sampled_from("kl"), st.integers(1, 3), json_objects),
    st.tuples(st.just("remove"), st.integers(0, 9)),
)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(plan=st.lists(steps, max_size=25))
def test_both_stores_agree_after_any_steps(
    tmp_path_factory: pytest.TempPathFactory, plan: list[tuple[Any, ...]]
) -> None:
    path = tmp_path_factory.mktemp("agree") / "db"
    with MemoryStore() as memory, SqliteStore(path) as sqlite:
        for step in plan:
            assert take(memory, step) == take(sqlite, step)
        assert memory.stats() == sqlite.stats()
        assert list(export_lines(memory)) == list(export_lines(sqlite))


def some(store: TuningStore, seed: int) -> Removal:
    """A part of what a store holds; the same of equal stores."""
    draw = random.Random(seed)
    return Removal(
        records=frozenset(each.content_id for each in store.all_records() if draw.random() < 0.5),
        attempts=frozenset(each for each in store.attempt_keys() if draw.random() < 0.5),
        blobs=frozenset(each for each in store.blob_keys() if draw.random() < 0.5),
        documents=frozenset(each for each in store.document_keys() if draw.random() < 0.5),
    )


def take(store: TuningStore, step: tuple[Any, ...]) -> Any:
    match step:
        case ("append", key, sample, purpose):
            added = store.append(measured(sample, key, purpose))
            return added, store.records(key, purpose), store.records(key, any_plugin=True)
        case ("attempt", key):
            return store.begin_attempt(key)
        case ("clear", key, of_the_dead):
            return store.clear_attempts(key, of_the_dead=of_the_dead)
        case ("blob", key, data):
            store.put_blob(SPACE, key, data)
            return store.get_blob(SPACE, key)
        case ("document", name, note):
            store.put_document(name, note)
            assert store.get_document(Note, name) == note
            return store.get_stored("note", name), store.document_keys()
        case ("stored", name, version, body):
            store.put_stored(StoredDocument(kind="note", name=name, version=version, body=body))
            return store.get_document(Note, name), store.get_stored("note", name)
        case ("remove", seed):
            removal = some(store, seed)
            store.remove(removal)
            return removal, store.attempt_keys(), store.blob_keys(), store.document_keys()
    raise AssertionError(step)
