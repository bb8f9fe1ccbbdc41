"""A tuning store that lives as long as its process."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from collage.store.documents import TypedDocuments
from collage.store.errors import DatabaseError
from collage.store.records import (
    BlobSpace,
    Purpose,
    RecordKey,
    StoredDocument,
    TuningRecord,
    content_id,
    from_json,
    of_any_plugin,
    to_json,
)
from collage.store.tuning_store import MAX_BLOB_BYTES, Damaged, Removal, StoreStats


class MemoryStore(TypedDocuments):
    """See `TuningStore`; nothing is kept beyond the process. Values are kept as JSON, so they are immutable."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closed = False
        self._records: dict[str, TuningRecord] = {}  # by their JSON, in the order added
        self._by_key: dict[RecordKey, list[str]] = {}  # by keys without the plugin's version
        self._attempts: Counter[RecordKey] = Counter()
        self._blobs: dict[tuple[BlobSpace, str], bytes] = {}
        self._documents: dict[tuple[str, str], tuple[str, float]] = {}  # JSON, and when it was put, by kind and name

    @property
    def url(self) -> str:
        """See `TuningStore`."""
        return "memory:"

    def _open(self) -> threading.Lock:
        if self._closed:
            raise DatabaseError(self.url, "it was closed")
        return self._lock

    def append(self, record: TuningRecord) -> bool:
        """See `TuningStore`."""
        text = to_json(record)
        with self._open():
            del self._attempts[record.key]
            return self._add(text)

    def append_all(self, records: Iterable[TuningRecord]) -> int:
        """See `TuningStore`."""
        texts = [to_json(record) for record in records]
        with self._open():
            return sum([self._add(text) for text in texts])

    def _add(self, text: str) -> bool:
        if text in self._records:
            return False
        record = from_json(text, TuningRecord)
        self._records[text] = record
        self._by_key.setdefault(of_any_plugin(record.key), []).append(text)
        return True

    def records(
        self, key: RecordKey, purpose: Purpose | None = None, *, any_plugin: bool = False
    ) -> tuple[TuningRecord, ...]:
        """See `TuningStore`."""
        with self._open():
            texts = [
                text
                for text in self._by_key.get(of_any_plugin(key), ())
                if purpose in (None, self._records[text].purpose)
                and (any_plugin or self._records[text].key.plugin == key.plugin)
            ]
        return tuple(from_json(text, TuningRecord) for text in texts)

    def records_with(
        self, hashes: Collection[str], hosts: Collection[str]
    ) -> dict[RecordKey, tuple[TuningRecord, ...]]:
        """See `TuningStore`."""
        with self._open():
            keys = [key for key, texts in self._by_key.items() if texts and key.structural_hash in hashes]
        return {key: self.records(key, any_plugin=True) for key in keys if key.host in hosts}

    def all_records(self, damaged: Damaged | None = None) -> Iterator[TuningRecord]:
        """See `TuningStore`."""
        with self._open():
            texts = tuple(self._records)
        return (from_json(text, TuningRecord) for text in texts)

    def begin_attempt(self, key: RecordKey) -> int:
        """See `TuningStore`."""
        with self._open():
            self._attempts[key] += 1
            return self._attempts[key]

    def attempts(self, key: RecordKey) -> int:
        """See `TuningStore`."""
        with self._open():
            return self._attempts[key]

    def clear_attempts(self, key: RecordKey, *, of_the_dead: bool = False) -> None:
        """See `TuningStore`."""
        with self._open():
            del self._attempts[key]

    def put_blob(self, space: BlobSpace, key: str, data: bytes) -> None:
        """See `TuningStore`."""
        with self._open():
            if len(data) <= MAX_BLOB_BYTES:
                self._blobs[space, key] = bytes(data)

    def get_blob(self, space: BlobSpace, key: str) -> bytes | None:
        """See `TuningStore`."""
        with self._open():
            return self._blobs.get((space, key))

    def blob_keys(self) -> tuple[tuple[BlobSpace, str], ...]:
        """See `TuningStore`."""
        with self._open():
            return tuple(sorted(self._blobs))

    def put_stored(self, document: StoredDocument) -> None:
        """See `TuningStore`."""
        self.put_all_stored([document])

    def put_all_stored(self, documents: Iterable[StoredDocument], *, replace: bool = True) -> int:
        """See `TuningStore`."""
        texts = {(document.kind, document.name): to_json(document) for document in documents}
        with self._open():
            new = [place for place in texts if replace or place not in self._documents]
            self._documents.update({place: (texts[place], time.time()) for place in new})
        return len(new)

    def get_stored(self, kind: str, name: str) -> StoredDocument | None:
        """See `TuningStore`."""
        with self._open():
            found = self._documents.get((kind, name))
        return None if found is None else from_json(found[0], StoredDocument)

    def document_keys(
        self, kind: str | None = None, prefix: str = "", *, before: float | None = None
    ) -> tuple[tuple[str, str], ...]:
        """See `TuningStore`."""
        with self._open():
            places = sorted(
                place for place, (_, written) in self._documents.items() if before is None or written < before
            )
        return tuple(place for place in places if kind in (None, place[0]) and place[1].startswith(prefix))

    def stats(self) -> StoreStats:
        """See `TuningStore`."""
        with self._open():
            records = self._records.values()
            return StoreStats(
                records=len(records),
                keys=len({record.key for record in records}),
                by_outcome=dict(sorted(Counter(record.outcome for record in records).items())),
                by_target=dict(sorted(Counter(record.key.target for record in records).items())),
                fingerprints=dict(sorted(Counter(record.key.fingerprint for record in records).items())),
                open_attempts=len(+self._attempts),
                blobs=len(self._blobs),
                blob_bytes=sum(map(len, self._blobs.values())),
                documents=len(self._documents),
            )

    def attempt_keys(self) -> tuple[RecordKey, ...]:
        """See `TuningStore`."""
        with self._open():
            return tuple(sorted(+self._attempts))

    def remove(self, removal: Removal) -> None:
        """See `TuningStore`."""
        with self._open():
            for text in [text for text in self._records if content_id(text) in removal.records]:
                self._by_key[of_any_plugin(self._records.pop(text).key)].remove(text)
            for key in removal.attempts:
                del self._attempts[key]
            for blob in removal.blobs:
                self._blobs.pop(blob, None)
            for document in removal.documents:
                self._documents.pop(document, None)

    def close(self) -> None:
        """See `TuningStore`."""
        self._closed = True

    def __enter__(self) -> MemoryStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
