"""Statements over one connection to a PostgreSQL server, which is opened again when it is lost."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict

from collage.store.errors import (
    DatabaseDamagedError,
    DatabaseDiskError,
    DatabaseError,
    DatabaseLockedError,
    DatabaseNameError,
    DatabaseReadOnlyError,
    DatabaseUnreachableError,
    DatabaseVersionError,
)
from collage.store.postgresql.postgres_schema import NAMESPACE, SCHEMA_VERSION, bring_up_to_date, found_version
from collage.store.sql.session import Row, Session, Value

T = TypeVar("T")

# A connection that a network drops silently is noticed within a minute or two.
_DEFAULTS: Mapping[str, Any] = MappingProxyType(
    {
        "connect_timeout": 10,
        "keepalives_idle": 30,
        "keepalives_interval": 10,
        "keepalives_count": 3,
        "tcp_user_timeout": 60_000,
    }
)
_LONGEST_PAUSE_S = 2.0
_CONFLICTS = 20
"""Conflicts with other writers after which work is given up."""
_CONFLICT = (errors.SerializationFailure, errors.DeadlockDetected, errors.ForeignKeyViolation, errors.UniqueViolation)
_KINDS: tuple[tuple[type[psycopg.Error], type[DatabaseError]], ...] = (
    (errors.ReadOnlySqlTransaction, DatabaseReadOnlyError),
    (errors.InsufficientPrivilege, DatabaseReadOnlyError),
    (errors.DiskFull, DatabaseDiskError),
    (errors.IoError, DatabaseDiskError),
    (errors.UndefinedTable, DatabaseDamagedError),
    (errors.UndefinedColumn, DatabaseDamagedError),
    (errors.LockNotAvailable, DatabaseLockedError),
    (errors.QueryCanceled, DatabaseLockedError),
)


class PostgresSession:
    """See `Session`."""

    def __init__(self, connection: psycopg.Connection[Row]) -> None:
        self._connection = connection

    def rows(self, statement: str, values: Sequence[Value] = ()) -> list[Row]:
        """See `Session`."""
        return self._connection.execute(_marked(statement), values).fetchall()

    def change(self, statement: str, values: Sequence[Value] = ()) -> int:
        """See `Session`."""
        return self._connection.execute(_marked(statement), values).rowcount

    def change_each(self, statement: str, rows: Iterable[Sequence[Value]]) -> int:
        """See `Session`; all rows are sent at once."""
        with self._connection.cursor() as cursor:
            cursor.executemany(_marked(statement), list(rows))
            return max(0, cursor.rowcount)


def _marked(statement: str) -> Any:
    return statement.replace("?", "%s").encode()  # psycopg takes literal text or bytes for what is no user's input


class PostgresDatabase:
    """See `Database`; one connection.

    A lost connection is opened again, and what it was used for is run again: what was acknowledged is on the server.

    Args:
        url: `postgresql://...`, as libpq has it.
        read_only: Open for reading; the tables must exist.
        patience_s: How long to try when the server was lost.

    Raises:
        DatabaseNameError: If libpq does not understand the URL.
        DatabaseUnreachableError: If the server does not answer.
        DatabaseError: If it is not a database that this version can use; it is left unchanged.
    """

    def __init__(self, url: str, *, read_only: bool = False, patience_s: float = 60.0) -> None:
        try:
            self._parameters: dict[str, Any] = {**_DEFAULTS, **conninfo_to_dict(url), "client_encoding": "utf8"}
        except psycopg.Error:  # its message has the URL, password and all
            raise DatabaseNameError("postgresql://...", "libpq does not understand this URL") from None
        self._read_only = read_only
        self._patience_s = patience_s
        self._lock = threading.RLock()
        self._closed = False
        self._connection: psycopg.Connection[Row] | None = None
        with self._translated():
            self._connection = self._connect()
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        """See `Database`; without user and password."""
        where = {name: self._parameters.get(name) or "" for name in ("host", "port", "dbname")}
        port = f":{where['port']}" if where["port"] else ""
        return f"postgresql://{where['host']}{port}/{where['dbname']}"

    def _connect(self) -> psycopg.Connection[Row]:
        connection = psycopg.connect(**self._parameters, autocommit=True, prepare_threshold=None)
        try:
            connection.execute(f"SET search_path TO {NAMESPACE}".encode())
            # whatever the server's default: acknowledged is durable
            connection.execute(b"SET synchronous_commit TO on")
            if self._read_only:
                connection.execute(b"SET default_transaction_read_only TO on")
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self) -> None:
        [(encoding,)] = self.read(lambda session: session.rows("SHOW server_encoding"))
        if encoding != "UTF8":
            raise DatabaseError(self.url, f"its encoding is {encoding}; create it with ENCODING 'UTF8'")
        version = self.read(found_version)
        if version > SCHEMA_VERSION:
            reason = f"it has schema version {version}, this Collage reads up to {SCHEMA_VERSION}"
            raise DatabaseVersionError(self.url, reason)
        if version < SCHEMA_VERSION:
            if self._read_only:
                raise DatabaseError(
                    self.url, "it has no tables yet" if not version else "its tables are of an older Collage"
                )
            self.write(bring_up_to_date)

    def read(self, work: Callable[[Session], T], *, snapshot: bool = False) -> T:
        """See `Database`."""

        def once(connection: psycopg.Connection[Row]) -> T:
            if not snapshot:
                return work(PostgresSession(connection))
            with connection.transaction():
                connection.execute(b"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
                return work(PostgresSession(connection))

        return self._patiently(once)

    def write(self, work: Callable[[Session], T]) -> T:
        """See `Database`."""

        def once(connection: psycopg.Connection[Row]) -> T:
            with connection.transaction():
                return work(PostgresSession(connection))

        return self._patiently(once)

    def _patiently(self, once: Callable[[psycopg.Connection[Row]], T]) -> T:
        """Return what some work returns; run it again after a lost connection or a conflict."""
        deadline: float | None = None
        pause_s, conflicts = 0.1, 0
        with self._lock:
            while True:
                if self._closed:
                    raise DatabaseError(self.url, "it was closed")
                try:
                    if self._connection is None:
                        self._connection = self._connect()
                    return once(self._connection)
                except _CONFLICT as error:
                    conflicts += 1
                    if conflicts > _CONFLICTS:
                        raise self._error(error) from None
                    time.sleep(random.uniform(0.0, 0.01 * conflicts))
                except (psycopg.OperationalError, psycopg.InterfaceError) as error:
                    if self._connection is not None and not self._connection.broken:
                        raise self._error(error) from None
                    self._drop()
                    now = time.monotonic()
                    deadline = deadline or now + self._patience_s
                    if now > deadline:
                        raise self._error(error) from None
                    time.sleep(pause_s)
                    pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                except psycopg.Error as error:
                    raise self._error(error) from None

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(psycopg.Error):
                connection.close()

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise self._error(error) from None

    def _error(self, error: psycopg.Error) -> DatabaseError:
        """Return what an error of the driver means, without secrets."""
        text = " ".join(str(error).split())[:300]
        for name in ("password", "sslpassword"):
            if secret := self._parameters.get(name):
                text = text.replace(str(secret), "...")
        for kind, ours in _KINDS:
            if isinstance(error, kind):
                return ours(self.url, text)
        lost = isinstance(error, psycopg.OperationalError) and (self._connection is None or self._connection.broken)
        return DatabaseUnreachableError(self.url, text) if lost else DatabaseError(self.url, text)

    def close(self) -> None:
        """See `Database`."""
        with self._lock:
            self._closed = True
            self._drop()
