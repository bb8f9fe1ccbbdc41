"""A tuning store in one SQLite file."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType

from collage.store.claimant import Claimant
from collage.store.connection import connect, translated
from collage.store.documents import TypedDocuments
from collage.store.errors import DatabaseDamagedError, DatabaseError
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
    structure,
    to_json,
)
from collage.store.tuning_store import Damaged, Removal, StoreStats

_PAGE = 500  # records read at a time by all_records
_ANY_PLUGIN_COLUMNS = "structural_hash, target, fingerprint, host, threads, launch, timing"
_KEY_COLUMNS = f"{_ANY_PLUGIN_COLUMNS}, plugin"
_ANY_PLUGIN, _KEY = (
    " AND ".join(f"{column} = ?" for column in columns.split(", ")) for columns in (_ANY_PLUGIN_COLUMNS, _KEY_COLUMNS)
)
_CLAIMANT_COLUMNS = "machine, pid, started"


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


class SqliteStore(TypedDocuments):
    """See `TuningStore`.

    One connection, used by one thread at a time. Do not use it across a fork; open it again in the child.

    Args:
        path: The file; created, with its directory, unless `read_only`.
        read_only: Open for reading; the file must exist.
        busy_timeout_s: How long to wait for another process that writes.
        salvage: Open a damaged file for reading; with `read_only`.

    Raises:
        DatabaseError: If it is not a tuning database that this version can use; the file is left unchanged.
    """

    def __init__(
        self, path: Path, *, read_only: bool = False, busy_timeout_s: float = 30.0, salvage: bool = False
    ) -> None:
        self._path = path
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = connect(path, read_only, busy_timeout_s, salvage=salvage)

    @property
    def url(self) -> str:
        """See `TuningStore`."""
        return f"sqlite:///{self._path}"

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            if self._connection is None:
                raise DatabaseError(self.url, "it was closed")
            with translated(self._path):
                yield self._connection

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._reading() as connection:
            # IMMEDIATE: wait for other writers now, not with half of the transaction done.
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def append(self, record: TuningRecord) -> bool:
        """See `TuningStore`."""
        row = _row(record)
        with self._writing() as connection:
            _forget(connection, record.key, [each for each, _ in _counting(connection, record.key)])
            return _insert(connection, row)

    def append_all(self, records: Iterable[TuningRecord]) -> int:
        """See `TuningStore`."""
        rows = [_row(record) for record in records]
        with self._writing() as connection:
            return sum([_insert(connection, row) for row in rows])

    def records(
        self, key: RecordKey, purpose: Purpose | None = None, *, any_plugin: bool = False
    ) -> tuple[TuningRecord, ...]:
        """See `TuningStore`."""
        query = f"SELECT content_id, body FROM record WHERE {_ANY_PLUGIN if any_plugin else _KEY}"
        values = _columns(key)[:-1] if any_plugin else _columns(key)
        if purpose is not None:
            query += " AND purpose = ?"
            values = (*values, purpose)
        with self._reading() as connection:
            rows = connection.execute(f"{query} ORDER BY id", values).fetchall()
        return tuple(self._record(*row) for row in rows)

    def all_records(self, damaged: Damaged | None = None) -> Iterator[TuningRecord]:
        """See `TuningStore`."""
        if damaged is not None:
            yield from self._readable_records(damaged)
            return
        last = 0
        while True:  # in pages, so that no lock is held while the caller works
            with self._reading() as connection:
                rows = connection.execute(
                    "SELECT id, content_id, body FROM record WHERE id > ? ORDER BY id LIMIT ?",
                    (last, _PAGE),
                ).fetchall()
            if not rows:
                return
            last = rows[-1][0]
            for _, checksum, body in rows:
                yield self._record(checksum, body)

    def _readable_records(self, damaged: Damaged) -> Iterator[TuningRecord]:
        # A record is in the table and in two indexes, all with its id: what is lost in one is found by another.
        ids: set[int] = set()
        for by in ("NOT INDEXED", "INDEXED BY record_by_key", "INDEXED BY sqlite_autoindex_record_1"):
            try:
                with self._reading() as connection:
                    for (number,) in connection.execute(f"SELECT id FROM record {by}"):
                        ids.add(number)
            except DatabaseError as error:
                damaged(error)
        for number in sorted(ids):
            try:
                with self._reading() as connection:
                    query = "SELECT content_id, body FROM record WHERE id = ?"
                    row = connection.execute(query, (number,)).fetchone()
                if row is None:
                    raise DatabaseDamagedError(self.url, f"record {number} is in an index only")
                found = self._record(*row)
            except DatabaseError as error:
                damaged(error)
                continue
            yield found

    def _record(self, checksum: str, body: str) -> TuningRecord:
        try:
            if content_id(body) != checksum:
                raise ValueError("its checksum is wrong")
            return from_json(body, TuningRecord)
        except (ValueError, TypeError, AttributeError) as error:
            raise DatabaseDamagedError(self.url, f"a record is damaged: {error}") from None

    def begin_attempt(self, key: RecordKey) -> int:
        """See `TuningStore`."""
        with self._writing() as connection:
            connection.execute(
                f"INSERT INTO attempt ({_KEY_COLUMNS}, {_CLAIMANT_COLUMNS}, begun, seen) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1, ?) "
                f"ON CONFLICT ({_KEY_COLUMNS}, {_CLAIMANT_COLUMNS}) "
                "DO UPDATE SET begun = begun + 1, seen = excluded.seen",
                (*_columns(key), *dataclasses.astuple(Claimant.this()), time.time()),
            )
            return sum(begun for _, begun in _counting(connection, key))

    def attempts(self, key: RecordKey) -> int:
        """See `TuningStore`."""
        with self._reading() as connection:
            return sum(begun for _, begun in _counting(connection, key))

    def clear_attempts(self, key: RecordKey, *, of_the_dead: bool = False) -> None:
        """See `TuningStore`."""
        with self._writing() as connection:
            counting = [each for each, _ in _counting(connection, key)]
            _forget(connection, key, [each for each in counting if of_the_dead or each.is_this])

    def put_blob(self, space: BlobSpace, key: str, data: bytes) -> None:
        """See `TuningStore`."""
        with self._writing() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO blob (toolchain, fingerprint, key, checksum, data) VALUES (?, ?, ?, ?, ?)",
                (space.toolchain, space.fingerprint, key, hashlib.sha256(data).hexdigest(), data),
            )

    def get_blob(self, space: BlobSpace, key: str) -> bytes | None:
        """See `TuningStore`."""
        with self._reading() as connection:
            row = connection.execute(
                "SELECT checksum, data FROM blob WHERE toolchain = ? AND fingerprint = ? AND key = ?",
                (space.toolchain, space.fingerprint, key),
            ).fetchone()
        if row is None:
            return None
        checksum, data = row
        if not isinstance(data, bytes) or hashlib.sha256(data).hexdigest() != checksum:
            raise DatabaseDamagedError(self.url, f"blob {key!r} of {space.toolchain} is not what was put there")
        return data

    def blob_keys(self) -> tuple[tuple[BlobSpace, str], ...]:
        """See `TuningStore`."""
        with self._reading() as connection:
            rows = connection.execute("SELECT toolchain, fingerprint, key FROM blob").fetchall()
        return tuple(sorted((BlobSpace(toolchain=row[0], fingerprint=row[1]), row[2]) for row in rows))

    def put_stored(self, document: StoredDocument) -> None:
        """See `TuningStore`."""
        row = (document.kind, document.name, document.version, json_text(document.body))
        with self._writing() as connection:
            connection.execute("INSERT OR REPLACE INTO document (kind, name, version, body) VALUES (?, ?, ?, ?)", row)

    def get_stored(self, kind: str, name: str) -> StoredDocument | None:
        """See `TuningStore`."""
        with self._reading() as connection:
            query = "SELECT version, body FROM document WHERE kind = ? AND name = ?"
            row = connection.execute(query, (kind, name)).fetchone()
        if row is None:
            return None
        version, body = row
        try:
            return structure({"kind": kind, "name": name, "version": version, "body": loads(body)}, StoredDocument)
        except (ValueError, TypeError) as error:
            raise DatabaseDamagedError(self.url, f"document {kind}/{name} is damaged: {error}") from None

    def document_keys(self) -> tuple[tuple[str, str], ...]:
        """See `TuningStore`."""
        with self._reading() as connection:
            rows = connection.execute("SELECT kind, name FROM document").fetchall()
        return tuple(sorted((kind, name) for kind, name in rows))

    def stats(self) -> StoreStats:
        """See `TuningStore`."""
        with self._reading() as connection:
            connection.execute("BEGIN")  # one snapshot for all counts
            try:
                counts = {
                    column: dict(
                        connection.execute(
                            f"SELECT {column}, count(*) FROM record GROUP BY {column} ORDER BY {column}"
                        ).fetchall()
                    )
                    for column in ("outcome", "target", "fingerprint")
                }
                [records] = connection.execute("SELECT count(*) FROM record").fetchone()
                [keys] = connection.execute(
                    f"SELECT count(*) FROM (SELECT DISTINCT {_KEY_COLUMNS} FROM record)"
                ).fetchone()
                [attempts] = connection.execute(
                    f"SELECT count(*) FROM (SELECT DISTINCT {_KEY_COLUMNS} FROM attempt)"
                ).fetchone()
                blobs, blob_bytes = connection.execute(
                    "SELECT count(*), coalesce(sum(length(data)), 0) FROM blob"
                ).fetchone()
                [documents] = connection.execute("SELECT count(*) FROM document").fetchone()
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
        return StoreStats(
            records=records,
            keys=keys,
            by_outcome=counts["outcome"],
            by_target=counts["target"],
            fingerprints=counts["fingerprint"],
            open_attempts=attempts,
            blobs=blobs,
            blob_bytes=blob_bytes,
            documents=documents,
        )

    def attempt_keys(self) -> tuple[RecordKey, ...]:
        """See `TuningStore`."""
        with self._reading() as connection:
            rows = connection.execute(f"SELECT DISTINCT {_KEY_COLUMNS} FROM attempt").fetchall()
        names = _KEY_COLUMNS.split(", ")
        return tuple(sorted(RecordKey(**dict(zip(names, row, strict=True))) for row in rows))

    def remove(self, removal: Removal) -> None:
        """See `TuningStore`."""
        with self._writing() as connection:
            connection.executemany("DELETE FROM record WHERE content_id = ?", [(each,) for each in removal.records])
            connection.executemany(f"DELETE FROM attempt WHERE {_KEY}", map(_columns, removal.attempts))
            connection.executemany(
                "DELETE FROM blob WHERE toolchain = ? AND fingerprint = ? AND key = ?",
                [(space.toolchain, space.fingerprint, key) for space, key in removal.blobs],
            )
            connection.executemany("DELETE FROM document WHERE kind = ? AND name = ?", removal.documents)

    def close(self) -> None:
        """See `TuningStore`."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def __enter__(self) -> SqliteStore:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _row(record: TuningRecord) -> tuple[str | int, ...]:
    body = to_json(record)
    return (content_id(body), *_columns(record.key), record.purpose, record.outcome, body)


def _insert(connection: sqlite3.Connection, row: tuple[str | int, ...]) -> bool:
    done = connection.execute(
        f"INSERT OR IGNORE INTO record (content_id, {_KEY_COLUMNS}, purpose, outcome, body) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        row,
    )
    return done.rowcount == 1


def _counting(connection: sqlite3.Connection, key: RecordKey) -> list[tuple[Claimant, int]]:
    """Return the claimants whose attempts count at a key, with the number of attempts begun.

    These are this process and those that died.
    """
    query = f"SELECT {_CLAIMANT_COLUMNS}, begun, seen FROM attempt WHERE {_KEY}"
    found = [
        (Claimant(machine=machine, pid=pid, started=started), begun, seen)
        for machine, pid, started, begun, seen in connection.execute(query, _columns(key)).fetchall()
    ]
    return [(who, begun) for who, begun, seen in found if who.is_this or not who.lives(seen)]


def _forget(connection: sqlite3.Connection, key: RecordKey, claimants: Iterable[Claimant]) -> None:
    connection.executemany(
        f"DELETE FROM attempt WHERE {_KEY} AND machine = ? AND pid = ? AND started = ?",
        [(*_columns(key), *dataclasses.astuple(who)) for who in claimants],
    )
