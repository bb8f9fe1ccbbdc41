"""The contract of a tuning store, as tests: a store keeps it if they pass.

Tests of a store inherit them and say how it is made:

    class TestMyStore(TuningStoreConformance):
        @pytest.fixture
        def store(self) -> Iterator[TuningStore]:
            with MyStore() as store:
                yield store
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from collage.store import (
    BlobSpace,
    MemoryStore,
    Purpose,
    RecordKey,
    Removal,
    StoredBlobs,
    StoredDocument,
    TuningRecord,
    TuningStore,
    export_lines,
    import_lines,
    merge,
)
from collage.store.errors import DatabaseError
from collage_core.contract import BlobCache

KEY = RecordKey(
    structural_hash="h", target="fast", fingerprint="fast 1.0", host="cpu", threads=2, launch="eager", timing="t"
)
SPACE = BlobSpace(toolchain="fast", fingerprint="fast 1.0")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Note:
    """A kind of document."""

    KIND: ClassVar[str] = "note"
    VERSION: ClassVar[int] = 2

    text: str = ""
    limit: float | None = None
    lines: tuple[tuple[int, float], ...] = ()
    names: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 0:
            raise ValueError("a limit is not negative")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Letter(Note):
    """Another kind with the same fields."""

    KIND: ClassVar[str] = "letter"


NOTE = Note(text="ü\ud800", limit=1.5, lines=((1, 2.0), (3, 4.0)), names={"b": "x", "a": ""})


def measured(sample_us: float = 12.0, key: RecordKey = KEY, purpose: Purpose = "select", **fields: Any) -> TuningRecord:
    """Return a record of two samples."""
    return TuningRecord(
        key=key,
        outcome="measured",
        purpose=purpose,
        created="2026-01-02T03:04:05.678+00:00",
        samples_us=(sample_us, 11.5),
        warmup_runs=3,
        **fields,
    )


def fill(store: TuningStore) -> None:
    """Put two records, a blob and a document into a store."""
    store.append_all([measured(1.0), measured(2.0)])
    store.put_blob(SPACE, "k", b"ours")
    store.put_document("p", Note(text="ours"))


class TuningStoreConformance:
    """Tests of every store. A subclass has a fixture `store` that gives an empty one, open for writing."""

    def test_a_record_comes_back_as_it_was(self, store: TuningStore) -> None:
        full = measured(error=1e-6, variant="v2", extra={"a": [1, {"b": None}], "ü": "x\ud800"})
        failed = TuningRecord(
            key=KEY,
            outcome="failed",
            purpose="verify",
            created="2026-01-02T03:04:05+01:00",
            reason="wrong numbers",
            stage="verify",
            error=0.3,
        )

        assert store.append(full)
        assert store.append(failed)

        assert store.records(KEY) == (full, failed)

    def test_records_of_a_key_come_in_the_order_added(self, store: TuningStore) -> None:
        other = dataclasses.replace(KEY, threads=1)
        for sample in (3.0, 1.0, 2.0):
            store.append(measured(sample))
            store.append(measured(sample, other))

        assert [r.samples_us[0] for r in store.records(KEY)] == [3.0, 1.0, 2.0]
        assert [r.key for r in store.all_records()] == [KEY, other] * 3

    @pytest.mark.parametrize("field", [f.name for f in dataclasses.fields(RecordKey)])
    def test_every_field_of_the_key_tells_records_apart(self, store: TuningStore, field: str) -> None:
        changed: dict[str, Any] = {field: 7 if field == "threads" else "other"}
        other = dataclasses.replace(KEY, **changed)
        store.append(measured())

        assert store.records(other) == ()

    def test_records_are_found_whichever_version_of_the_plugin_made_them(self, store: TuningStore) -> None:
        newer = dataclasses.replace(KEY, plugin="p 2")
        records = [measured(2.0, newer), measured(1.0), measured(3.0, newer, purpose="confirm")]
        store.append_all([*records, measured(4.0, dataclasses.replace(newer, threads=1))])

        assert store.records(KEY, any_plugin=True) == store.records(newer, any_plugin=True) == tuple(records)
        assert store.records(KEY, "select", any_plugin=True) == tuple(records[:2])
        assert store.records(newer) == (records[0], records[2])

    def test_records_are_found_by_purpose(self, store: TuningStore) -> None:
        chosen, confirmed = measured(1.0), measured(1.0, purpose="confirm")
        store.append(chosen)
        store.append(confirmed)

        assert store.records(KEY, "select") == (chosen,)
        assert store.records(KEY, "confirm") == (confirmed,)
        assert store.records(KEY, "end_to_end") == ()

    def test_equal_records_are_one(self, store: TuningStore) -> None:
        assert store.append(measured(12))
        assert not store.append(measured(12.0))
        assert store.append_all([measured(12.0), measured(13.0), measured(13.0)]) == 1
        assert len(store.records(KEY)) == 2

    def test_many_records_are_added_all_or_none(self, store: TuningStore) -> None:
        with pytest.raises(ValueError, match="not JSON"):
            store.append_all([measured(1.0), measured(2.0, extra={"a": object()})])

        assert store.records(KEY) == ()

    def test_altering_what_was_given_or_got_alters_nothing(self, store: TuningStore) -> None:
        extra: dict[str, Any] = {"list": [1]}
        store.append(measured(extra=extra))
        extra["list"].append(2)
        [got] = store.records(KEY)
        got.extra["list"].append(3)

        assert store.records(KEY)[0].extra == {"list": [1]}

    def test_attempts_are_counted_until_a_record_ends_them(self, store: TuningStore) -> None:
        assert store.attempts(KEY) == 0
        assert store.begin_attempt(KEY) == 1
        assert store.begin_attempt(KEY) == 2
        assert store.attempts(KEY) == 2
        assert store.attempts(dataclasses.replace(KEY, host="other")) == 0

        store.append(measured())

        assert store.attempts(KEY) == 0

    def test_an_equal_record_ends_attempts_too(self, store: TuningStore) -> None:
        store.append(measured())
        store.begin_attempt(KEY)
        store.append(measured())

        assert store.attempts(KEY) == 0

    def test_records_from_elsewhere_end_no_attempts(self, store: TuningStore) -> None:
        store.begin_attempt(KEY)
        store.append_all([measured()])

        assert store.attempts(KEY) == 1

    def test_attempts_can_be_forgotten(self, store: TuningStore) -> None:
        other = dataclasses.replace(KEY, host="other")
        for key in (KEY, other, other):
            store.begin_attempt(key)

        store.clear_attempts(KEY)

        assert (store.attempts(KEY), store.attempts(other)) == (0, 2)

    def test_blobs_are_apart_by_toolchain_and_fingerprint(self, store: TuningStore) -> None:
        newer = BlobSpace(toolchain="fast", fingerprint="fast 2.0")
        store.put_blob(SPACE, "cache", b"\0one")
        store.put_blob(newer, "cache", b"")
        store.put_blob(SPACE, "cache", b"\0two")

        assert store.get_blob(SPACE, "cache") == b"\0two"
        assert store.get_blob(newer, "cache") == b""
        assert store.get_blob(SPACE, "other") is None
        assert store.blob_keys() == ((SPACE, "cache"), (newer, "cache"))

    def test_a_toolchain_sees_its_blobs_as_a_cache(self, store: TuningStore) -> None:
        cache: BlobCache = StoredBlobs(store, SPACE)
        cache.put("k", b"v")

        assert cache.get("k") == store.get_blob(SPACE, "k") == b"v"

    def test_a_document_comes_back_as_it_was(self, store: TuningStore) -> None:
        store.put_document("n", NOTE)

        assert store.get_document(Note, "n") == NOTE

    def test_documents_are_kept_by_kind_and_name(self, store: TuningStore) -> None:
        store.put_document("b", Note(text="first"))
        store.put_document("b", Letter(text="letter"))
        store.put_document("a", Note())
        store.put_document("b", Note(text="second"))

        assert store.get_document(Note, "b") == Note(text="second")
        assert store.get_document(Letter, "b") == Letter(text="letter")
        assert store.get_document(Letter, "a") is None
        assert store.document_keys() == (("letter", "b"), ("note", "a"), ("note", "b"))

    @pytest.mark.parametrize("change", [{"version": 1}, {"version": 3}, {"kind": "letter"}, {"name": "other"}], ids=str)
    def test_a_document_of_another_version_kind_or_name_is_not_there(
        self, store: TuningStore, change: dict[str, Any]
    ) -> None:
        stored = StoredDocument(kind="note", name="n", version=2, body={"text": "t"})
        store.put_stored(stored)
        assert store.get_document(Note, "n") == Note(text="t")

        other = dataclasses.replace(stored, **change)
        store.remove(Removal(documents=frozenset({("note", "n")})))
        store.put_stored(other)

        assert store.get_document(Note, "n") is None
        assert store.get_stored(other.kind, other.name) == other

    def test_the_first_document_of_a_name_stays(self, store: TuningStore) -> None:
        assert store.keep_first("n", Note(text="first")) == Note(text="first")
        assert store.keep_first("n", Note(text="second")) == Note(text="first")
        assert store.get_document(Note, "n") == Note(text="first")
        assert store.keep_first("other", Note(text="second")) == Note(text="second")

    def test_one_that_is_not_understood_gives_way_to_the_first_that_is(self, store: TuningStore) -> None:
        store.put_stored(StoredDocument(kind="note", name="n", version=1, body={"text": "old"}))

        assert store.keep_first("n", Note(text="first")) == Note(text="first")
        assert store.get_document(Note, "n") == Note(text="first")

    def test_keys_of_a_toolchains_cache_may_be_long(self, store: TuningStore) -> None:
        cache = StoredBlobs(store, SPACE)
        keys = ["".join(chr(0x4E00 + (7 * place + seed) % 20000) for place in range(5000)) for seed in range(2)]
        for number, key in enumerate(keys):
            cache.put(key, bytes([number]))

        assert [cache.get(key) for key in keys] == [b"\0", b"\1"]

    def test_a_document_is_json(self, store: TuningStore) -> None:
        with pytest.raises(ValueError, match="JSON"):
            store.put_document("n", Note(limit=float("inf")))
        with pytest.raises(ValueError, match="JSON"):
            store.put_stored(StoredDocument(kind="note", name="n", version=2, body={"x": object()}))

        assert store.document_keys() == ()

    def test_stats_count_what_is_there(self, store: TuningStore) -> None:
        slow = dataclasses.replace(KEY, target="slow", fingerprint="slow 1.0")
        store.append(measured(1.0))
        store.append(measured(2.0))
        store.append(TuningRecord(key=slow, outcome="refused", purpose="select", created="2026-01-01T00:00Z"))
        store.begin_attempt(KEY)
        store.put_blob(SPACE, "k", b"12345")
        store.put_document("p", Note())

        stats = store.stats()

        assert (stats.records, stats.keys, stats.open_attempts) == (3, 2, 1)
        assert (stats.blobs, stats.blob_bytes, stats.documents) == (1, 5, 1)
        assert stats.by_outcome == {"measured": 2, "refused": 1}
        assert stats.by_target == {"fast": 2, "slow": 1}
        assert stats.fingerprints == {"fast 1.0": 2, "slow 1.0": 1}

    def test_what_is_removed_is_gone_and_nothing_else(self, store: TuningStore) -> None:
        other = dataclasses.replace(KEY, plugin="p 1")
        for key in (KEY, other):
            store.append_all([measured(1.0, key), measured(2.0, key)])
            store.begin_attempt(key)
        for name in "kl":
            store.put_blob(SPACE, name, b"bytes")
            store.put_document(name, Note())
        removal = Removal(
            records=frozenset({measured(1.0, other).content_id, "0" * 64}),
            attempts=frozenset({other, dataclasses.replace(KEY, threads=9)}),
            blobs=frozenset({(SPACE, "k"), (SPACE, "m")}),
            documents=frozenset({("note", "l"), ("letter", "k")}),
        )

        store.remove(removal)

        assert store.records(KEY, any_plugin=True) == (measured(1.0), measured(2.0), measured(2.0, other))
        assert store.attempt_keys() == (KEY,)
        assert store.blob_keys() == ((SPACE, "l"),)
        assert store.document_keys() == (("note", "k"),)
        assert store.append(measured(1.0, other))
        assert bool(removal)
        assert not Removal()

    def test_threads_share_a_store(self, store: TuningStore) -> None:
        def work(thread: int) -> None:
            for sample in range(20):
                store.begin_attempt(KEY)
                store.append_all([measured(float(sample))])
                store.put_blob(SPACE, f"{thread}", b"x" * sample)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert (len(store.records(KEY)), store.attempts(KEY)) == (20, 80)

    def test_a_closed_store_says_so(self, store: TuningStore) -> None:
        store.close()
        store.close()

        with pytest.raises(DatabaseError, match="closed"):
            store.records(KEY)

    def test_an_export_makes_an_equal_store(self, store: TuningStore) -> None:
        fill(store)
        lines = list(export_lines(store))
        with MemoryStore() as copy:
            done = import_lines(copy, lines, cached_files=True)
            again = import_lines(copy, lines, cached_files=True)

            assert (done.records, done.known, done.blobs, done.documents) == (2, 0, 1, 1)
            assert (again.records, again.known, again.blobs, again.documents) == (0, 2, 0, 0)
            assert list(export_lines(copy)) == lines

    def test_merging_keeps_what_is_there(self, store: TuningStore) -> None:
        fill(store)
        with MemoryStore() as other:
            other.append_all([measured(2.0), measured(3.0)])
            other.put_blob(SPACE, "k", b"theirs")
            other.put_document("p", Note(text="theirs"))
            other.put_document("q", Note())

            done = merge(store, other, cached_files=True)

        assert (done.records, done.known, done.blobs, done.documents) == (1, 1, 0, 1)
        assert [r.samples_us[0] for r in store.records(KEY)] == [1.0, 2.0, 3.0]
        assert store.get_blob(SPACE, "k") == b"ours"
        assert store.get_document(Note, "p") == Note(text="ours")
        assert store.get_document(Note, "q") == Note()

    def test_many_kernels_are_asked_for_at_once(self, store: TuningStore) -> None:
        newer, elsewhere = dataclasses.replace(KEY, plugin="p 2"), dataclasses.replace(KEY, host="other")
        last = dataclasses.replace(KEY, structural_hash="h1199", target="slow")
        records = [measured(2.0, newer), measured(1.0), measured(3.0, elsewhere), measured(4.0, last)]
        store.append_all([*records, measured(5.0, dataclasses.replace(KEY, structural_hash="unasked"))])
        hashes = {"h", "unknown", *(f"h{number}" for number in range(1200))}

        assert store.records_with(hashes, {"cpu"}) == {KEY: tuple(records[:2]), last: (records[3],)}
        assert store.records_with({"h"}, {"cpu", "other"}) == {KEY: tuple(records[:2]), elsewhere: (records[2],)}
        assert store.records_with({"h"}, ()) == store.records_with((), {"cpu"}) == {}

    def test_many_documents_are_kept_all_or_none(self, store: TuningStore) -> None:
        first, second, third = (StoredDocument(kind="note", name=name, version=1, body={}) for name in "abc")
        other = dataclasses.replace(first, version=2)

        assert store.put_all_stored([first, second]) == 2
        assert store.put_all_stored([other, third], replace=False) == 1
        with pytest.raises(ValueError, match="JSON"):
            store.put_all_stored([other, dataclasses.replace(first, name="d", body={"x": object()})])

        assert store.get_stored("note", "a") == first
        assert store.put_all_stored([other]) == 1
        assert store.get_stored("note", "a") == other
        assert store.document_keys() == (("note", "a"), ("note", "b"), ("note", "c"))

    def test_documents_are_listed_by_age(self, store: TuningStore) -> None:
        store.put_document("old", NOTE)
        middle = time.time()
        while time.time() == middle:  # clocks of some systems stand still for a while
            pass
        store.put_document("new", NOTE)

        assert store.document_keys(before=middle + 1e-9) == (("note", "old"),)
        assert store.document_keys(before=time.time() + 60) == (("note", "new"), ("note", "old"))

    def test_documents_are_listed_by_kind_and_beginning(self, store: TuningStore) -> None:
        for kind, name in (("note", "a%/1"), ("note", "a%/2"), ("note", "ab/1"), ("letter", "a%/1")):
            store.put_stored(StoredDocument(kind=kind, name=name, version=1, body={}))

        assert store.document_keys("note", "a%/") == (("note", "a%/1"), ("note", "a%/2"))
        assert store.document_keys(prefix="a%") == (("letter", "a%/1"), ("note", "a%/1"), ("note", "a%/2"))
        assert store.document_keys("letter") == (("letter", "a%/1"),)

    def test_equal_blobs_outlive_each_other(self, store: TuningStore) -> None:
        for name in "kl":
            store.put_blob(SPACE, name, b"equal")
        store.remove(Removal(blobs=frozenset({(SPACE, "k")})))

        assert store.get_blob(SPACE, "k") is None
        assert store.get_blob(SPACE, "l") == b"equal"
        assert store.stats().blob_bytes == 5
