"""The contract of a tuning store."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Protocol, TypeAlias

from collage.store.documents import D, Document
from collage.store.errors import DatabaseError
from collage.store.records import BlobSpace, Purpose, RecordKey, StoredDocument, TuningRecord

Damaged: TypeAlias = Callable[[DatabaseError], None]
"""Receives an error for each entry that cannot be read."""

MAX_BLOB_BYTES = 512 << 20
"""Larger blobs are not kept: databases have limits of their own (PostgreSQL's is a gigabyte), and blobs are caches."""

_LONGEST_KEY = 400

OWN_KINDS = frozenset({"optimization", "verification"})
"""Kinds of documents by which work is left out that would find out whether a package is right: one's own count only."""

MAX_ATTEMPTS = 2
"""Attempts without an outcome after which a candidate is skipped, because it kills the measuring process."""


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
class Removal:
    """What is to be removed from a store.

    Attributes:
        records: Content identifiers of records.
        attempts: Keys whose attempts go.
        blobs: Space and key of blobs.
        documents: Kind and name of documents.
    """

    records: frozenset[str] = frozenset()
    attempts: frozenset[RecordKey] = frozenset()
    blobs: frozenset[tuple[BlobSpace, str]] = frozenset()
    documents: frozenset[tuple[str, str]] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.records or self.attempts or self.blobs or self.documents)


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
        """URL by which a user names the store."""

    def append(self, record: TuningRecord) -> bool:
        """Add a record and end all open attempts at its key, except those of other running processes.

        Returns:
            Whether the record was new.
        """

    def append_all(self, records: Iterable[TuningRecord]) -> int:
        """Add many records, all or none; leave attempts unchanged, because the records were taken elsewhere.

        Returns:
            The number of new records.
        """

    def records(
        self, key: RecordKey, purpose: Purpose | None = None, *, any_plugin: bool = False
    ) -> tuple[TuningRecord, ...]:
        """Return the records of a key in insertion order.

        Args:
            key: The key.
            purpose: Return only those made for one purpose.
            any_plugin: Return also those of other versions of the plugin.
        """

    def records_with(
        self, hashes: Collection[str], hosts: Collection[str]
    ) -> dict[RecordKey, tuple[TuningRecord, ...]]:
        """Return the records of many kernels on some machines, whichever versions of plugins made them.

        A search asks for hundreds of kernels, and of a server every question costs a round trip.

        Args:
            hashes: Structural hashes of the kernels.
            hosts: Fingerprints of the machines, as in `RecordKey`.

        Returns:
            Records in insertion order, by their key without the plugin's version (`of_any_plugin`).
        """

    def all_records(self, damaged: Damaged | None = None) -> Iterator[TuningRecord]:
        """Yield every record in insertion order; records added meanwhile may or may not be included.

        Args:
            damaged: Receives the records that cannot be read, which are left out; None to raise.
        """

    def begin_attempt(self, key: RecordKey) -> int:
        """Record that a measurement is about to start.

        Returns:
            The current value of `attempts`. Beyond `MAX_ATTEMPTS` the caller should not start it.
        """

    def attempts(self, key: RecordKey) -> int:
        """Return the number of attempts at this key that no record ended.

        Attempts of this process are counted, and those of others that have died since.
        """

    def clear_attempts(self, key: RecordKey, *, of_the_dead: bool = False) -> None:
        """Remove this process's attempts at a key.

        Args:
            key: The key.
            of_the_dead: Remove also those of processes that have died since.
        """

    def put_blob(self, space: BlobSpace, key: str, data: bytes) -> None:
        """Store bytes; replace those under the same space and key.

        More than `MAX_BLOB_BYTES` are not kept.
        """

    def get_blob(self, space: BlobSpace, key: str) -> bytes | None:
        """Return the bytes; None if there are none, or they are kept where this process cannot read.

        Raises:
            DatabaseDamagedError: If they are not those that were put.
        """

    def blob_keys(self) -> tuple[tuple[BlobSpace, str], ...]:
        """Return every blob's space and key, sorted."""

    def put_document(self, name: str, document: Document) -> None:
        """Keep a document; replaces the one of the same kind and name.

        Raises:
            ValueError: If a number in it is not finite.
        """

    def keep_first(self, name: str, document: D) -> D:
        """Keep a document unless there is one of the same kind and name that is understood.

        Of processes that find out the same at once, all go by what the first of them found.

        Returns:
            The document that is kept.

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

    def put_all_stored(self, documents: Iterable[StoredDocument], *, replace: bool = True) -> int:
        """Keep many documents, all or none.

        Args:
            documents: The documents.
            replace: Whether to replace those of the same kind and name; otherwise they stay as they are.

        Returns:
            How many were written.

        Raises:
            ValueError: If one is not JSON.
        """

    def get_stored(self, kind: str, name: str) -> StoredDocument | None:
        """Return a document as it was put, or None if there is none of that kind and name.

        Raises:
            DatabaseDamagedError: If it is no document.
        """

    def document_keys(
        self, kind: str | None = None, prefix: str = "", *, before: float | None = None
    ) -> tuple[tuple[str, str], ...]:
        """Return documents' kinds and names, sorted.

        Args:
            kind: Only of this kind.
            prefix: Only those whose names begin so.
            before: Only those last put before this time, in seconds since 1970.
        """

    def stats(self) -> StoreStats:
        """Return statistics of the store's content."""

    def attempt_keys(self) -> tuple[RecordKey, ...]:
        """Return every key with attempts that no record ended, sorted."""

    def remove(self, removal: Removal) -> None:
        """Remove items; what is not there is left out."""

    def close(self) -> None:
        """Release the store's resources; closing again does nothing, any other call is an error."""

    def __enter__(self) -> TuningStore: ...

    def __exit__(self, *_: object) -> None: ...


@dataclasses.dataclass(frozen=True, slots=True)
class StoredBlobs:
    """One toolchain's blobs: the `BlobCache` of the plugin contract."""

    store: TuningStore
    space: BlobSpace

    def get(self, key: str) -> bytes | None:
        """See `BlobCache`."""
        return self.store.get_blob(self.space, _short(key))

    def put(self, key: str, data: bytes) -> None:
        """See `BlobCache`."""
        self.store.put_blob(self.space, _short(key), data)


def _short(key: str) -> str:
    """Return a key that every database has an index for: PostgreSQL's take a third of a page."""
    return key if len(key) <= _LONGEST_KEY else hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()
