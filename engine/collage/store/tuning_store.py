"""The contract of a tuning store."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Protocol, TypeAlias

from collage.errors import DatabaseError
from collage.store.documents import D, Document
from collage.store.records import BlobSpace, Purpose, RecordKey, StoredDocument, TuningRecord

Damaged: TypeAlias = Callable[[DatabaseError], None]
"""Is told what cannot be read."""

MAX_ATTEMPTS = 2
"""Measuring is begun so often without an outcome before a candidate is left alone: it kills what measures it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StoreStats:
    """How much a store holds.

    Attributes:
        records: Number of records.
        keys: Number of different keys among them.
        by_outcome: Records per outcome.
        by_target: Records per target.
        fingerprints: Records per fingerprint.
        open_attempts: Keys with attempts that no record ended.
        blobs: Number of blobs.
        blob_bytes: Their size.
        documents: Number of documents.
    """

    records: int
    keys: int
    by_outcome: Mapping[str, int]
    by_target: Mapping[str, int]
    fingerprints: Mapping[str, int]
    open_attempts: int
    blobs: int
    blob_bytes: int
    documents: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """What a garbage collection removed."""

    records: int
    blobs: int


class TuningStore(Protocol):
    """Where measurements, caches of toolchains and documents outlive a run.

    Every method is atomic, and what it wrote is durable when it returns: a process killed at any point loses
    nothing that was acknowledged and leaves nothing half written. Several threads may share a store; several
    processes may open the same one. Records are never changed; equal records are stored once.

    Every method may raise `DatabaseError` or one of its kinds; writing methods raise `DatabaseReadOnlyError` on
    a store opened for reading.
    """

    @property
    def url(self) -> str:
        """How a user names it."""

    def append(self, record: TuningRecord) -> bool:
        """Adds a record and ends all open attempts at its key, but those of other processes that still run.

        Returns:
            Whether it was new.
        """

    def append_all(self, records: Iterable[TuningRecord]) -> int:
        """Adds many records, all or none. Leaves attempts as they are: the records were taken elsewhere.

        Returns:
            How many were new.
        """

    def records(self, key: RecordKey, purpose: Purpose | None = None) -> tuple[TuningRecord, ...]:
        """All records of a key in the order they were added, or only those made for one purpose."""

    def all_records(self, damaged: Damaged | None = None) -> Iterator[TuningRecord]:
        """Every record in the order they were added; those added meanwhile may or may not be among them.

        Args:
            damaged: Is told of records that cannot be read, which are left out; None to raise.
        """

    def begin_attempt(self, key: RecordKey) -> int:
        """Notes, before a measurement starts, that it will.

        Returns:
            What `attempts` says now. Beyond `MAX_ATTEMPTS` one should rather not start.
        """

    def attempts(self, key: RecordKey) -> int:
        """Attempts at this key that no record ended: this process's, and those of others that have died since."""

    def clear_attempts(self, key: RecordKey) -> None:
        """Forgets this process's attempts at a key."""

    def put_blob(self, space: BlobSpace, key: str, data: bytes) -> None:
        """Keeps bytes; replaces those kept under the same space and key."""

    def get_blob(self, space: BlobSpace, key: str) -> bytes | None:
        """The bytes, or None if there are none.

        Raises:
            DatabaseDamagedError: If they are not those that were put.
        """

    def blob_keys(self) -> tuple[tuple[BlobSpace, str], ...]:
        """Every blob's space and key, sorted."""

    def put_document(self, name: str, document: Document) -> None:
        """Keep a document; replaces the one of the same kind and name.

        Raises:
            ValueError: If a number in it is not finite.
        """

    def get_document(self, kind: type[D], name: str) -> D | None:
        """Return a document; None if there is none of that name, or it is not understood.

        Whatever another version, or an import, left is as good as not there: it is found out anew.
        """

    def put_stored(self, document: StoredDocument) -> None:
        """Keep a document as it is, read or not; replaces the one of the same kind and name.

        Raises:
            ValueError: If it is not JSON.
        """

    def get_stored(self, kind: str, name: str) -> StoredDocument | None:
        """Return a document as it was put, or None if there is none of that kind and name.

        Raises:
            DatabaseDamagedError: If it is no document.
        """

    def document_keys(self) -> tuple[tuple[str, str], ...]:
        """Return every document's kind and name, sorted."""

    def stats(self) -> StoreStats:
        """How much it holds."""

    def gc(self, keep: Collection[str]) -> Removed:
        """Removes records, attempts and blobs of every fingerprint that is not in `keep`."""

    def close(self) -> None:
        """Releases what it holds; closing again does nothing, any other call is an error."""

    def __enter__(self) -> TuningStore: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


@dataclasses.dataclass(frozen=True, slots=True)
class StoredBlobs:
    """One toolchain's blobs: the `BlobCache` of the plugin contract."""

    store: TuningStore
    space: BlobSpace

    def get(self, key: str) -> bytes | None:
        """See `BlobCache`."""
        return self.store.get_blob(self.space, key)

    def put(self, key: str, data: bytes) -> None:
        """See `BlobCache`."""
        self.store.put_blob(self.space, key, data)
