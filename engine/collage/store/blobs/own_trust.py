"""A store that others write to, with what only this user is believed of in one of their own."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Collection, Iterable, Iterator

from collage.store.documents import TypedDocuments
from collage.store.records import BlobSpace, Purpose, RecordKey, StoredDocument, TuningRecord
from collage.store.tuning_store import OWN_KINDS, Damaged, Removal, StoreStats, TuningStore


class OwnTrust(TypedDocuments):
    """See `TuningStore`.

    Records and documents are numbers: who may write them can mislead a search, and what it decides is measured and
    verified again. Blobs are what toolchains load as their own work, compiled code among them: who may write them can
    run code here. Verifications say that nothing need be verified again. So these are those of this user, unless the
    user trusts everybody who may write to the store.

    Args:
        shared: Has records, attempts and other documents.
        own: Opens the store that has blobs and verifications; called when they are first asked for.
    """

    def __init__(self, shared: TuningStore, own: Callable[[], TuningStore]) -> None:
        self._shared = shared
        self._open_own = own
        self._opened: TuningStore | None = None
        self._lock = threading.Lock()

    @property
    def _own(self) -> TuningStore:
        with self._lock:
            if self._opened is None:
                self._opened = self._open_own()
            return self._opened

    def _of(self, kind: str) -> TuningStore:
        return self._own if kind in OWN_KINDS else self._shared

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
        self._of(document.kind).put_stored(document)

    def put_all_stored(self, documents: Iterable[StoredDocument], *, replace: bool = True) -> int:
        """See `TuningStore`."""
        every = list(documents)
        own = [each for each in every if each.kind in OWN_KINDS]
        written = self._own.put_all_stored(own, replace=replace) if own else 0
        return written + self._shared.put_all_stored((each for each in every if each not in own), replace=replace)

    def get_stored(self, kind: str, name: str) -> StoredDocument | None:
        """See `TuningStore`."""
        return self._of(kind).get_stored(kind, name)

    def document_keys(
        self, kind: str | None = None, prefix: str = "", *, before: float | None = None
    ) -> tuple[tuple[str, str], ...]:
        """See `TuningStore`."""
        if kind is not None:
            return self._of(kind).document_keys(kind, prefix, before=before)
        shared = (each for each in self._shared.document_keys(None, prefix, before=before) if each[0] not in OWN_KINDS)
        own = (each for kind in OWN_KINDS for each in self._own.document_keys(kind, prefix, before=before))
        return tuple(sorted((*shared, *own)))

    def stats(self) -> StoreStats:
        """See `TuningStore`."""
        own = self._own.stats()
        return dataclasses.replace(self._shared.stats(), blobs=own.blobs, blob_bytes=own.blob_bytes)

    def attempt_keys(self) -> tuple[RecordKey, ...]:
        """See `TuningStore`."""
        return self._shared.attempt_keys()

    def remove(self, removal: Removal) -> None:
        """See `TuningStore`; what is this user's own goes first, each of the two stores all or not at all."""
        documents = frozenset(each for each in removal.documents if each[0] in OWN_KINDS)
        own = Removal(blobs=removal.blobs, documents=documents)
        if own:
            self._own.remove(own)
        shared = dataclasses.replace(removal, blobs=frozenset(), documents=removal.documents - documents)
        self._shared.remove(shared)

    def close(self) -> None:
        """See `TuningStore`."""
        try:
            if self._opened is not None:
                self._opened.close()
        finally:
            self._shared.close()

    def __enter__(self) -> OwnTrust:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
