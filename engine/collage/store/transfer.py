"""Export a tuning database to JSON lines, import it, and merge databases."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import functools
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TextIO, TypeVar

from collage.store.errors import DatabaseDamagedError, DatabaseError, ExportVersionError
from collage.store.records import BlobSpace, StoredDocument, TuningRecord, dumps, loads, structure, to_json
from collage.store.tuning_store import OWN_KINDS, Damaged, TuningStore

FORMAT = "collage-tuning"
FORMAT_VERSION = 4
_READ = (3, FORMAT_VERSION)
"""Versions that can be imported; of 3, whose records do not name the plugin's version, it is unknown."""
_BATCH = 1000  # records added in one transaction
_LONGEST_HEADER = 1000
_LONGEST_LINE = 1 << 30  # characters; a blob has 512 MiB at most, and base64 makes a third more of it
_Value = TypeVar("_Value")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Transferred:
    """What an import or a merge did.

    Attributes:
        records: Records that were new.
        known: Records that were there already.
        blobs: Blobs added; those whose place is taken stay as they are.
        left_out: Blobs left out because nobody vouched for them; verifications are left out, too, and not counted.
        documents: Documents added; those whose place is taken stay as they are.
    """

    records: int
    known: int
    blobs: int
    left_out: int
    documents: int


def export_lines(store: TuningStore, damaged: Damaged | None = None) -> Iterator[str]:
    """Yield the store as lines of JSON, without line ends: a header, then records, blobs and documents.

    Attempts are not exported: they concern this machine only.

    Args:
        store: What to export.
        damaged: Receives what cannot be read, which is left out; None to raise.
    """
    yield dumps({"format": FORMAT, "version": FORMAT_VERSION})
    for record in store.all_records(damaged):
        yield f'{{"record":{to_json(record)}}}'
    keys: Sequence[tuple[BlobSpace, str]] = _read(store.blob_keys, damaged) or ()
    for space, key in keys:
        data = _read(functools.partial(store.get_blob, space, key), damaged)
        if data is not None:
            yield dumps(
                {
                    "blob": base64.b64encode(data).decode("ascii"),
                    "key": key,
                    "sha256": hashlib.sha256(data).hexdigest(),
                    "space": loads(to_json(space)),
                }
            )
    places: Sequence[tuple[str, str]] = _read(store.document_keys, damaged) or ()
    for kind, name in places:
        document = _read(functools.partial(store.get_stored, kind, name), damaged)
        if document is not None:
            yield f'{{"document":{to_json(document)}}}'


def _read(read: Callable[[], _Value], damaged: Damaged | None) -> _Value | None:
    try:
        return read()
    except DatabaseError as error:
        if damaged is None:
            raise
        damaged(error)
        return None


def lines_of(stream: TextIO) -> Iterator[str]:
    """Yield the lines of an export; a line that no export has is cut, so that a stream without lines has an end."""
    limit = _LONGEST_HEADER
    while line := stream.readline(limit):
        yield line
        limit = _LONGEST_LINE


def import_lines(
    store: TuningStore, lines: Iterable[str], source: str = "import", *, cached_files: bool = False
) -> Transferred:
    """Add what `export_lines` wrote. Importing again adds nothing.

    Args:
        store: Where to.
        lines: The lines.
        source: What to call them in errors.
        cached_files: Whether whoever wrote them may run code here: then blobs are added, which toolchains take for
            their own work, and verifications, which say that packages need not be looked at again.

    Raises:
        DatabaseDamagedError: If a line is not one of an export; those before it are kept.
        ExportVersionError: If a newer or an older Collage wrote them.
    """
    adding = _Adding(store, trusted=cached_files)
    numbered = enumerate(lines, start=1)
    _check_header(next(numbered, (1, ""))[1], source)
    for number, line in numbered:
        if not line.strip():
            continue
        try:
            _import_line(adding, loads(line))
        except (ValueError, KeyError, TypeError) as error:
            adding.flush()
            reason = f"line {number} is no line of an export: {error}"
            raise DatabaseDamagedError(source, reason) from None
    return adding.result()


def merge(store: TuningStore, other: TuningStore, *, cached_files: bool = False) -> Transferred:
    """Add the content of another store; merging again adds nothing.

    Args:
        store: Where to.
        other: What to add.
        cached_files: As for `import_lines`.
    """
    adding = _Adding(store, trusted=cached_files)
    for record in other.all_records():
        adding.record(record)
    for space, key in other.blob_keys():
        data = other.get_blob(space, key) if cached_files else b""
        if data is not None:
            adding.blob(space, key, data)
    for kind, name in other.document_keys():
        document = other.get_stored(kind, name)
        if document is not None:
            adding.document(document)
    return adding.result()


def _check_header(line: str, source: str) -> None:
    try:
        header = loads(line)
        if header["format"] != FORMAT:
            raise ValueError
        version = int(header["version"])
    except (ValueError, KeyError, TypeError):
        reason = "its first line is not the header of an export"
        raise DatabaseDamagedError(source, reason) from None
    if version not in _READ:
        raise ExportVersionError(source, f"it has format version {version}, this Collage reads {FORMAT_VERSION}")


def _import_line(adding: _Adding, line: Any) -> None:
    match line:
        case {"record": record, **rest} if not rest:
            adding.record(structure(record, TuningRecord))
        case {"blob": str(text), "key": str(key), "sha256": checksum, "space": space, **rest} if not rest:
            try:
                data = base64.b64decode(text, validate=True)
            except binascii.Error as error:
                raise ValueError(f"blob {key!r} is not base64: {error}") from None
            if hashlib.sha256(data).hexdigest() != checksum:
                raise ValueError(f"the checksum of blob {key!r} is wrong")
            adding.blob(structure(space, BlobSpace), key, data)
        case {"document": document, **rest} if not rest:
            adding.document(structure(document, StoredDocument))
        case _:
            raise ValueError("neither record, blob nor document")


class _Adding:
    """Adds missing entries to a store, records and documents in batches."""

    def __init__(self, store: TuningStore, *, trusted: bool) -> None:
        self._store = store
        self._trusted = trusted
        self._left_out = 0
        self._batch: list[TuningRecord] = []
        self._waiting: list[StoredDocument] = []
        self._seen = 0
        self._new = 0
        self._blobs = 0
        self._documents = 0

    def record(self, record: TuningRecord) -> None:
        self._batch.append(record)
        self._seen += 1
        if len(self._batch) >= _BATCH:
            self.flush()

    def blob(self, space: BlobSpace, key: str, data: bytes) -> None:
        if not self._trusted:
            self._left_out += 1
        elif self._store.get_blob(space, key) is None:
            self._store.put_blob(space, key, data)
            self._blobs += 1

    def document(self, document: StoredDocument) -> None:
        if document.kind in OWN_KINDS and not self._trusted:
            return  # found out anew
        self._waiting.append(document)
        if len(self._waiting) >= _BATCH:
            self.flush()

    def flush(self) -> None:
        self._new += self._store.append_all(self._batch)
        self._batch.clear()
        self._documents += self._store.put_all_stored(self._waiting, replace=False)
        self._waiting.clear()

    def result(self) -> Transferred:
        self.flush()
        return Transferred(
            records=self._new,
            known=self._seen - self._new,
            blobs=self._blobs,
            left_out=self._left_out,
            documents=self._documents,
        )
