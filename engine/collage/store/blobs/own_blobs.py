"""A store that others write to, with the blobs of this user alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator
from types import TracebackType

from collage.store.documents import TypedDocuments
from collage.store.records import BlobSpace, Purpose, RecordKey, StoredDocument, TuningRecord
from collage.store.tuning_store import Damaged, Removal, StoreStats, TuningStore


class OwnBlobs(TypedDocuments):
    """See `TuningStore`.

    Records and documents are numbers: who may write them can mislead a search, and what it decides is measured and
    verified again. Blobs are what toolchains load as their own work, compiled code among them: who may write them can
    run code here. So they are those of this user, unless the user trusts everybody who may write to the store.

    Args:
        shared: Has records, attempts and documents.
        own: Has blobs.
    """

    def __init__(self, shared: TuningStore, own: TuningStore) -> None:
        self._shared = shared
        self._own = own

    @property
    def url(self) -> str:
        """See `TuningStore`."""
        return self._shared.url

    def append(self, record: TuningRecord) -> bool:
        """See `TuningStore`."""
        return self._shared.append(record)

    def append_all(self, records: Iterable[TuningRecord]) -> int:
        """See `TuningStore`."""
        return self._shared.append_all(records)

    def records(
        self, key: RecordKey, purpose: Purpose | None = None, *, any_plugin: bool = False
    ) -> tuple[TuningRecord, ...]:
        """See `TuningStore`."""
        return self._shared.records(key, purpose, any_plugin=any_plugin)

    def records_with(
        self, hashes: Collection[str], hosts: Collection[str]
    ) -> dict[RecordKey, tuple[TuningRecord, ...]]:
        """See `TuningStore`."""
        return self._shared.records_with(hashes, hosts)

    def all_records(self, damaged: Damaged | None = None) -> Iterator[TuningRecord]:
        """See `TuningStore`."""
        return self._shared.all_records(damaged)

    def begin_attempt(self, key: RecordKey) -> int:
        """See `TuningStore`."""
        return self._shared.begin_attempt(key)

    def attempts(self, key: RecordKey) -> int:
        """See `TuningStore`."""
        return self._shared.attempts(key)

    def clear_attempts(self, key: RecordKey, *, of_the_dead: bool = False) -> None:
        """See `TuningStore`."""
        self._shared.clear_attempts(key, of_the_dead=of_the_dead)

    def put_blob(self, space: BlobSpace, key: str, data: bytes) -> None:
        """See `TuningStore`."""
        self._own.put_blob(space, key, data)

    def get_blob(self, space: BlobSpace, key: str) -> bytes | None:
        """See `TuningStore`."""
        return self._own.get_blob(space, key)

    def blob_keys(self) -> tuple[tuple[BlobSpace, str], ...]:
        """See `TuningStore`."""
        return self._own.blob_keys()

    def put_stored(self, document: StoredDocument) -> None:
        """See `TuningStore`."""
        self._shared.put_stored(document)

    def put_all_stored(self, documents: Iterable[StoredDocument], *, replace: bool = True) -> int:
        """See `TuningStore`."""
        return self._shared.put_all_stored(documents, replace=replace)

    def get_stored(self, kind: str, name: str) -> StoredDocument | None:
        """See `TuningStore`."""
        return self._shared.get_stored(kind, name)

    def document_keys(
        self, kind: str | None = None, prefix: str = "", *, before: float | None = None
    ) -> tuple[tuple[str, str], ...]:
        """See `TuningStore`."""
        return self._shared.document_keys(kind, prefix, before=before)

    def stats(self) -> StoreStats:
        """See `TuningStore`."""
        own = self._own.stats()
        return dataclasses.replace(self._shared.stats(), blobs=own.blobs, blob_bytes=own.blob_bytes)

    def attempt_keys(self) -> tuple[RecordKey, ...]:
        """See `TuningStore`."""
        return self._shared.attempt_keys()

    def remove(self, removal: Removal) -> None:
        """See `TuningStore`; blobs go first, each of the two stores all or not at all."""
        if removal.blobs:
            self._own.remove(Removal(blobs=removal.blobs))
        self._shared.remove(dataclasses.replace(removal, blobs=frozenset()))

    def close(self) -> None:
        """See `TuningStore`."""
        try:
            self._own.close()
        finally:
            self._shared.close()

    def __enter__(self) -> OwnBlobs:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
