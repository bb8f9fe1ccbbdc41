"""Statements over one SQLite connection."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from collage.store.errors import DatabaseError
from collage.store.sql.session import Row, Session, Value
from collage.store.sqlite.connection import connect, translated

T = TypeVar("T")


class SqliteSession:
    """See `Session`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def rows(self, statement: str, values: Sequence[Value] = ()) -> list[Row]:
        """See `Session`."""
        return self._connection.execute(statement, values).fetchall()

    def change(self, statement: str, values: Sequence[Value] = ()) -> int:
        """See `Session`."""
        return self._connection.execute(statement, values).rowcount

    def change_each(self, statement: str, rows: Iterable[Sequence[Value]]) -> int:
        """See `Session`."""
        return max(0, self._connection.executemany(statement, rows).rowcount)  # -1 of no rows


class SqliteDatabase:
    """See `Database`; one connection. Do not use it across a fork; open it again in the child.

    Args:
        path: The file.
        read_only: Open for reading.
        busy_timeout_s: How long to wait for another process that writes.
        salvage: Open a damaged file for reading.

    Raises:
        DatabaseError: As `connect` does.
    """

    def __init__(self, path: Path, *, read_only: bool, busy_timeout_s: float, salvage: bool) -> None:
        self._path = path
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = connect(path, read_only, busy_timeout_s, salvage=salvage)

    @property
    def url(self) -> str:
        """See `Database`."""
        return f"sqlite:///{self._path}"

    def read(self, work: Callable[[Session], T], *, snapshot: bool = False) -> T:
        """See `Database`."""
        return self._run(work, "BEGIN", "ROLLBACK") if snapshot else self._run(work)

    def each(self, statement: str) -> Iterator[Row]:
        """Yield the rows of a statement as they are read: of a damaged table, those before the damage."""
        with self._lock:
            if self._connection is None:
                raise DatabaseError(self.url, "it was closed")
            with translated(self._path):
                yield from self._connection.execute(statement)

    def write(self, work: Callable[[Session], T]) -> T:
        """See `Database`."""
        # IMMEDIATE: wait for other writers now, not with half of the transaction done
        return self._run(work, "BEGIN IMMEDIATE", "COMMIT")

    def _run(self, work: Callable[[Session], T], begin: str = "", end: str = "") -> T:
        with self._lock:
            if self._connection is None:
                raise DatabaseError(self.url, "it was closed")
            with translated(self._path):
                if not begin:
                    return work(SqliteSession(self._connection))
                try:
                    self._connection.execute(begin)  # an interrupt may come while it waits for another writer
                    found = work(SqliteSession(self._connection))
                    self._connection.execute(end)
                except BaseException:
                    if self._connection.in_transaction:
                        self._connection.execute("ROLLBACK")
                    raise
                return found

    def close(self) -> None:
        """See `Database`."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()
