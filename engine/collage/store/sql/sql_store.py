"""A tuning store in a relational database."""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Self, TypeVar

from collage.store.blobs.blob_files import BlobFiles
from collage.store.claimant import Claimant
from collage.store.documents import TypedDocuments
from collage.store.errors import DatabaseDamagedError
from collage.store.records import (
    BlobSpace,
    Purpose,
    RecordKey,
    StoredDocument,
    TuningRecord,
    content_id,
    from_json,
    json_text,
    loads,
    of_any_plugin,
    structure,
    to_json,
)
from collage.store.sql.session import Database, Row, Session, Value
from collage.store.tuning_store import MAX_BLOB_BYTES, Damaged, Removal, StoreStats

_PAGE = 500  # records read at a time by all_records, and values in one list
_ANY_PLUGIN_COLUMNS = "structural_hash, target, fingerprint, host, threads, launch, timing"
KEY_COLUMNS = f"{_ANY_PLUGIN_COLUMNS}, plugin"
_ANY_PLUGIN, _KEY = (
    " AND ".join(f"{column} = ?" for column in columns.split(", ")) for columns in (_ANY_PLUGIN_COLUMNS, KEY_COLUMNS)
)
_CLAIMANT_COLUMNS = "machine, pid, started"
_INSERT = (
    f"INSERT INTO record (content_id, {KEY_COLUMNS}, purpose, outcome, body) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (content_id) DO NOTHING"
)
_PLACE = "toolchain = ? AND fingerprint = ? AND key = ?"
_IN_FILES = "files"
"""Where the bytes of a blob are if they are not in the database."""
_Item = TypeVar("_Item")


class SqlStore(TypedDocuments):
    """See `TuningStore`.

    Bytes of blobs are kept once, by their SHA-256, whatever number of keys they are under.

    Args:
        database: Where the tables are.
        files: Where the bytes of large blobs are kept; None for in the database.
    """

    def __init__(self, database: Database, files: BlobFiles | None = None) -> None:
        self._database = database
        self._files = files

    @property
    def url(self) -> str:
        """See `TuningStore`."""
        return self._database.url

    def append(self, record: TuningRecord) -> bool:
        """See `TuningStore`."""
        row = _row(record)

        def work(session: Session) -> bool:
            _forget(session, record.key, [each for each, _ in _counting(session, record.key)])
            return session.change(_INSERT, row) == 1

        return self._database.write(work)

    def append_all(self, records: Iterable[TuningRecord]) -> int:
        """See `TuningStore`."""
        rows = [_row(record) for record in records]
        return self._database.write(lambda session: session.change_each(_INSERT, rows))

    def records(
        self, key: RecordKey, purpose: Purpose | None = None, *, any_plugin: bool = False
    ) -> tuple[TuningRecord, ...]:
        """See `TuningStore`."""
        query = f"SELECT content_id, body FROM record WHERE {_ANY_PLUGIN if any_plugin else _KEY}"
        values = _columns(key)[:-1] if any_plugin else _columns(key)
        if purpose is not None:
            query += " AND purpose = ?"
            values = (*values, purpose)
        rows = self._rows(f"{query} ORDER BY id", values)
        return tuple(self._record(*row) for row in rows)

    def records_with(
        self, hashes: Collection[str], hosts: Collection[str]
    ) -> dict[RecordKey, tuple[TuningRecord, ...]]:
        """See `TuningStore`."""
        found: dict[RecordKey, list[TuningRecord]] = {}
        for some in _pages(sorted(hashes)) if hosts else ():
            query = (
                f"SELECT content_id, body FROM record WHERE structural_hash IN ({_marks(some)}) "
                f"AND host IN ({_marks(hosts)}) ORDER BY id"
            )
            values = (*some, *sorted(hosts))
            for row in self._rows(query, values):
                record = self._record(*row)
                found.setdefault(of_any_plugin(record.key), []).append(record)
        return {key: tuple(records) for key, records in found.items()}

    def all_records(self, damaged: Damaged | None = None) -> Iterator[TuningRecord]:
        """See `TuningStore`."""
        last = 0
        query = "SELECT id, content_id, body FROM record WHERE id > ? ORDER BY id LIMIT ?"
        while True:  # in pages, so that nothing is locked while the caller works
            rows = self._rows(query, (last, _PAGE))
            if not rows:
                return
            last = rows[-1][0]
            for _, checksum, body in rows:
                try:
                    found = self._record(checksum, body)
                except DatabaseDamagedError as error:
                    if damaged is None:
                        raise
                    damaged(error)
                    continue
                yield found

    def _rows(self, statement: str, values: Sequence[Value] = ()) -> list[Row]:
        return self._database.read(lambda session: session.rows(statement, values))

    def _record(self, checksum: str, body: str) -> TuningRecord:
        try:
            if content_id(body) != checksum:
                raise ValueError("its checksum is wrong")
            return from_json(body, TuningRecord)
        except (ValueError, TypeError, AttributeError) as error:
            raise DatabaseDamagedError(self.url, f"a record is damaged: {error}") from None

    def begin_attempt(self, key: RecordKey) -> int:
        """See `TuningStore`."""
        this, now = Claimant.this(), time.time()
        begun: list[int] = []

        def work(session: Session) -> int:
            if not begun:  # work that is run again counts once
                begun.append(1 + sum(count for who, count in _counting(session, key) if who.is_this))
            session.change(
                f"INSERT INTO attempt ({KEY_COLUMNS}, {_CLAIMANT_COLUMNS}, begun, seen) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
                f"ON CONFLICT ({KEY_COLUMNS}, {_CLAIMANT_COLUMNS}) "
                "DO UPDATE SET begun = excluded.begun, seen = excluded.seen",
                (*_columns(key), *dataclasses.astuple(this), *begun, now),
            )
            return sum(count for _, count in _counting(session, key))

        return self._database.write(work)

    def attempts(self, key: RecordKey) -> int:
        """See `TuningStore`."""
        return self._database.read(lambda session: sum(begun for _, begun in _counting(session, key)))

    def clear_attempts(self, key: RecordKey, *, of_the_dead: bool = False) -> None:
        """See `TuningStore`."""

        def work(session: Session) -> None:
            counting = [each for each, _ in _counting(session, key)]
            _forget(session, key, [each for each in counting if of_the_dead or each.is_this])

        self._database.write(work)

    def put_blob(self, space: BlobSpace, key: str, data: bytes) -> None:
        """See `TuningStore`."""
        if len(data) > MAX_BLOB_BYTES:
            return
        checksum = hashlib.sha256(data).hexdigest()
        in_files = self._files is not None and len(data) > self._files.least_bytes
        if self._files is not None and in_files and not self._files.put(checksum, data):
            return  # it goes first, so that what the database names is there

        place = (space.toolchain, space.fingerprint, key)

        def work(session: Session) -> list[str]:
            before = session.rows(f"SELECT checksum FROM blob WHERE {_PLACE}", place)
            session.change(
                "INSERT INTO content (checksum, size, place, data) VALUES (?, ?, ?, ?) "
                "ON CONFLICT (checksum) DO UPDATE SET place = excluded.place, data = excluded.data "
                "WHERE content.place <> excluded.place",
                (checksum, len(data), _IN_FILES if in_files else "", b"" if in_files else data),
            )
            session.change(
                "INSERT INTO blob (toolchain, fingerprint, key, checksum) VALUES (?, ?, ?, ?) "
                "ON CONFLICT (toolchain, fingerprint, key) DO UPDATE SET checksum = excluded.checksum",
                (*place, checksum),
            )
            return [gone for (old,) in before for gone in _without_key(session, "checksum = ?", [old])]

        self._drop_files(self._database.write(work))

    def get_blob(self, space: BlobSpace, key: str) -> bytes | None:
        """See `TuningStore`."""
        rows = self._rows(
            "SELECT content.checksum, content.place, content.data FROM blob JOIN content USING (checksum) "
            f"WHERE {_PLACE}",
            (space.toolchain, space.fingerprint, key),
        )
        if not rows:
            return None
        [(checksum, place, data)] = rows
        if place == _IN_FILES:
            data = None if self._files is None else self._files.get(checksum)
        if data is None:
            return None  # kept where this process does not look, or gone: a cache that lacks it
        if not isinstance(data, bytes) or hashlib.sha256(data).hexdigest() != checksum:
            raise DatabaseDamagedError(self.url, f"blob {key!r} of {space.toolchain} is not what was put there")
        return data

    def blob_keys(self) -> tuple[tuple[BlobSpace, str], ...]:
        """See `TuningStore`."""
        rows = self._rows("SELECT toolchain, fingerprint, key FROM blob")
        return tuple(sorted((BlobSpace(toolchain=row[0], fingerprint=row[1]), row[2]) for row in rows))

    def put_stored(self, document: StoredDocument) -> None:
        """See `TuningStore`."""
        self.put_all_stored([document])

    def put_all_stored(self, documents: Iterable[StoredDocument], *, replace: bool = True) -> int:
        """See `TuningStore`."""
        now = time.time()
        rows = [(each.kind, each.name, each.version, json_text(each.body), now) for each in documents]
        new = "version = excluded.version, body = excluded.body, written = excluded.written"
        conflict = f"DO UPDATE SET {new}" if replace else "DO NOTHING"
        statement = (
            "INSERT INTO document (kind, name, version, body, written) VALUES (?, ?, ?, ?, ?) "
            f"ON CONFLICT (kind, name) {conflict}"
        )
        return self._database.write(lambda session: session.change_each(statement, rows))

    def get_stored(self, kind: str, name: str) -> StoredDocument | None:
        """See `TuningStore`."""
        query = "SELECT version, body FROM document WHERE kind = ? AND name = ?"
        rows = self._rows(query, (kind, name))
        if not rows:
            return None
        [(version, body)] = rows
        try:
            return structure({"kind": kind, "name": name, "version": version, "body": loads(body)}, StoredDocument)
        except (ValueError, TypeError) as error:
            raise DatabaseDamagedError(self.url, f"document {kind}/{name} is damaged: {error}") from None

    def document_keys(
        self, kind: str | None = None, prefix: str = "", *, before: float | None = None
    ) -> tuple[tuple[str, str], ...]:
        """See `TuningStore`."""
        conditions, values = ["substr(name, 1, ?) = ?"], list[Value]((len(prefix), prefix))
        if kind is not None:
            conditions.append("kind = ?")
            values.append(kind)
        if before is not None:
            conditions.append("written < ?")
            values.append(before)
        query = f"SELECT kind, name FROM document WHERE {' AND '.join(conditions)}"
        rows = self._rows(query, values)
        return tuple(sorted((kind, name) for kind, name in rows))

    def stats(self) -> StoreStats:
        """See `TuningStore`."""
        return self._database.read(_stats, snapshot=True)

    def attempt_keys(self) -> tuple[RecordKey, ...]:
        """See `TuningStore`."""
        rows = self._rows(f"SELECT DISTINCT {KEY_COLUMNS} FROM attempt")
        names = KEY_COLUMNS.split(", ")
        return tuple(sorted(RecordKey(**dict(zip(names, row, strict=True))) for row in rows))

    def remove(self, removal: Removal) -> None:
        """See `TuningStore`."""

        def work(session: Session) -> list[str]:
            session.change_each("DELETE FROM record WHERE content_id = ?", [(each,) for each in removal.records])
            session.change_each(f"DELETE FROM attempt WHERE {_KEY}", map(_columns, removal.attempts))
            session.change_each(
                f"DELETE FROM blob WHERE {_PLACE}",
                [(space.toolchain, space.fingerprint, key) for space, key in removal.blobs],
            )
            session.change_each("DELETE FROM document WHERE kind = ? AND name = ?", removal.documents)
            return _without_key(session) if removal.blobs else []

        self._drop_files(self._database.write(work))

    def _drop_files(self, checksums: Collection[str]) -> None:
        # whoever put the same bytes meanwhile finds them missing, as a cache may
        if self._files is not None:
            self._files.remove(checksums)

    def close(self) -> None:
        """See `TuningStore`."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _stats(session: Session) -> StoreStats:
    def one(statement: str) -> int:
        [(found,)] = session.rows(statement)
        return int(found)

    counts: dict[str, dict[str, int]] = {
        column: dict(session.rows(f"SELECT {column}, count(*) FROM record GROUP BY {column}"))
        for column in ("outcome", "target", "fingerprint")
    }
    by_outcome, by_target, fingerprints = (dict(sorted(each.items())) for each in counts.values())
    return StoreStats(
        records=one("SELECT count(*) FROM record"),
        keys=one(f"SELECT count(*) FROM (SELECT DISTINCT {KEY_COLUMNS} FROM record) AS found"),
        by_outcome=by_outcome,
        by_target=by_target,
        fingerprints=fingerprints,
        open_attempts=one(f"SELECT count(*) FROM (SELECT DISTINCT {KEY_COLUMNS} FROM attempt) AS found"),
        blobs=one("SELECT count(*) FROM blob"),
        blob_bytes=one("SELECT coalesce(sum(content.size), 0) FROM blob JOIN content USING (checksum)"),
        documents=one("SELECT count(*) FROM document"),
    )


def _without_key(session: Session, condition: str = "1 = 1", values: Sequence[Value] = ()) -> list[str]:
    """Remove bytes that no key names, and return the checksums of those that are in files."""
    unused = f"{condition} AND NOT EXISTS (SELECT 1 FROM blob WHERE blob.checksum = content.checksum)"
    gone = session.rows(f"SELECT checksum FROM content WHERE place = ? AND {unused}", (_IN_FILES, *values))
    session.change(f"DELETE FROM content WHERE {unused}", values)
    return [checksum for (checksum,) in gone]


def _columns(key: RecordKey) -> tuple[str | int, ...]:
    return (
        key.structural_hash,
        key.target,
        key.fingerprint,
        key.host,
        key.threads,
        key.launch,
        key.timing,
        key.plugin,
    )


def _row(record: TuningRecord) -> tuple[str | int, ...]:
    body = to_json(record)
    return (content_id(body), *_columns(record.key), record.purpose, record.outcome, body)


def _marks(values: Collection[object]) -> str:
    return ", ".join("?" * len(values))


def _pages(items: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
    return (items[start : start + _PAGE] for start in range(0, len(items), _PAGE))


def _counting(session: Session, key: RecordKey) -> list[tuple[Claimant, int]]:
    """Return the claimants whose attempts count at a key, with the number of attempts begun.

    These are this process and those that died.
    """
    query = f"SELECT {_CLAIMANT_COLUMNS}, begun, seen FROM attempt WHERE {_KEY}"
    found = [
        (Claimant(machine=machine, pid=pid, started=started), begun, seen)
        for machine, pid, started, begun, seen in session.rows(query, _columns(key))
    ]
    return [(who, begun) for who, begun, seen in found if who.is_this or not who.lives(seen)]


def _forget(session: Session, key: RecordKey, claimants: Iterable[Claimant]) -> None:
    session.change_each(
        f"DELETE FROM attempt WHERE {_KEY} AND machine = ? AND pid = ? AND started = ?",
        [(*_columns(key), *dataclasses.astuple(who)) for who in claimants],
    )
