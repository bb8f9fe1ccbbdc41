"""Open a SQLite file as a tuning database, creating it if needed and rejecting other databases.

Durability: write-ahead log with `synchronous=FULL`. SQLite then syncs the log at every commit, so a commit that
returned survives a stop of the process or the machine at any point; with `NORMAL` the last commits may be lost when the
machine stops (https://www.sqlite.org/pragma.html#pragma_synchronous). Readers never wait for a writer. Where the file
system has no shared memory, SQLite keeps its rollback journal, which is as durable.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from collage.store.errors import (
    DatabaseDamagedError,
    DatabaseDiskError,
    DatabaseError,
    DatabaseForeignError,
    DatabaseLockedError,
    DatabaseReadOnlyError,
    DatabaseVersionError,
)
from collage.store.sqlite.sqlite_schema import APPLICATION_ID, SCHEMA_VERSION, copy_readable, create, upgrade
from collage_core.ir.io.special_files import why_no_file

_KINDS: dict[int, type[DatabaseError]] = {
    sqlite3.SQLITE_BUSY: DatabaseLockedError,
    sqlite3.SQLITE_LOCKED: DatabaseLockedError,
    sqlite3.SQLITE_READONLY: DatabaseReadOnlyError,
    sqlite3.SQLITE_CORRUPT: DatabaseDamagedError,
    sqlite3.SQLITE_NOTADB: DatabaseForeignError,
    sqlite3.SQLITE_FULL: DatabaseDiskError,
    sqlite3.SQLITE_IOERR: DatabaseDiskError,  # also what a limit or a quota on files comes as
}


@contextlib.contextmanager
def translated(path: Path) -> Iterator[None]:
    """Translate SQLite's errors into Collage's."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", None)
        primary = None if code is None else code & 0xFF  # the upper bits only refine it
        kind = DatabaseError if primary is None else _KINDS.get(primary, DatabaseError)
        text = str(error)
        if kind is DatabaseError and ("no such" in text or "decode" in text):
            kind = DatabaseDamagedError  # our mark but not our tables; text that is none
        if primary == sqlite3.SQLITE_CANTOPEN:
            kind, text = _why_not_opened(path, text)
        raise kind(f"sqlite:///{path}", text[:200]) from error


def connect(path: Path, read_only: bool, busy_timeout_s: float, *, salvage: bool = False) -> sqlite3.Connection:
    """Open a tuning database; create it where there is no file or an empty one.

    A database opened for writing is first checked as a whole, which takes as long as reading it: in a damaged one a
    write may overwrite data that could still be read. One of an older version is then brought up to date; opened for
    reading it stays as it is, and the connection is to a copy in memory.

    Args:
        path: Path of the database.
        read_only: Open for reading.
        busy_timeout_s: Time to wait for another process that writes, in seconds.
        salvage: Open for reading although pages are missing.

    Raises:
        DatabaseError: One of its subclasses; an existing file is left unchanged.
    """
    url = f"sqlite:///{path}"
    if reason := why_no_file(path):
        raise DatabaseError(url, reason)
    if read_only and not path.exists():
        raise DatabaseError(url, "there is no such file")
    if not read_only:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DatabaseReadOnlyError(url, f"its directory cannot be made: {error}") from None
    _refuse_foreign(path, url)
    if not salvage:
        _refuse_torn(path, url)
    if not read_only:
        _refuse_unwritable(path, url)
    mode = "ro" if read_only else "rwc"
    with translated(path):
        connection = sqlite3.connect(
            f"{path.resolve().as_uri()}?mode={mode}{_unshared(path) if read_only else ''}",
            uri=True,
            timeout=busy_timeout_s,
            isolation_level=None,  # transactions are begun where they are meant
            check_same_thread=False,  # the store has a lock
        )
        try:
            if salvage:
                # SQLite refuses a file shorter than its header says, but not while a schema is under repair
                # (`lockBtree` in btree.c); nothing can be written through a connection opened for reading
                connection.execute("PRAGMA writable_schema = ON")
            _identify(connection, url, read_only)
            if read_only:
                if _version(connection) < SCHEMA_VERSION:
                    connection = _upgraded_copy(connection, salvage=salvage)
            else:
                _require_writable(connection)
                _require_sound(connection, url)
                _use_write_ahead_log(connection, busy_timeout_s)
                connection.execute("PRAGMA synchronous = FULL")
                _upgrade(connection)
        except BaseException:
            connection.close()
            raise
    return connection


def _refuse_foreign(path: Path, url: str) -> None:
    # From the header alone, https://www.sqlite.org/fileformat2.html#the_database_header: for SQLite even to read
    # a database can mean to roll back or to check-point what its owner left.
    try:
        with path.open("rb") as file:
            header = file.read(100)
    except FileNotFoundError:
        return
    except OSError as error:
        raise DatabaseError(url, f"it cannot be read: {error}") from None
    if header and not header.startswith(b"SQLite format 3\0"):
        raise DatabaseForeignError(url, "it is not a SQLite database")
    application = int.from_bytes(header[68:72], "big")
    if application not in (0, APPLICATION_ID):
        raise DatabaseForeignError(url, "it is a SQLite database of another program")


def _refuse_torn(path: Path, url: str) -> None:
    # SQLite takes a last page that is cut short for one that ends in zeros, unless its log has the page
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        page_bytes = int.from_bytes(file.read(18)[16:], "big")
        page_bytes = 65536 if page_bytes == 1 else page_bytes  # as the header has it
        if page_bytes and os.fstat(file.fileno()).st_size % page_bytes and not _has_log(path):
            raise DatabaseDamagedError(url, "its last page is cut short")


def _refuse_unwritable(path: Path, url: str) -> None:
    # before SQLite opens it for reading instead, and leaves its empty log beside it
    if not os.access(path.parent, os.W_OK):
        raise DatabaseReadOnlyError(url, f"its directory {str(path.parent)!r} cannot be written")
    if path.exists() and not os.access(path, os.W_OK):
        raise DatabaseReadOnlyError(url, "the file cannot be written")


def _has_log(path: Path) -> bool:
    """Return whether a write-ahead log holds changes that the file itself does not have yet."""
    log = path.with_name(f"{path.name}-wal")
    return log.exists() and log.stat().st_size > 0


def _unshared(path: Path) -> str:
    """Return a URI parameter that opens a file in a directory that cannot be written.

    Readers of a write-ahead log share a file beside it, and SQLite fails where it cannot create one. Without a log
    there is nothing to share, and nobody can write there (https://www.sqlite.org/wal.html#readonly).
    """
    return "" if os.access(path.parent, os.W_OK) or _has_log(path) else "&immutable=1"


def _why_not_opened(path: Path, text: str) -> tuple[type[DatabaseError], str]:
    """Return the error class and reason behind SQLite's `unable to open database file`."""
    with contextlib.suppress(OSError):
        if os.statvfs(path.parent).f_bavail == 0:
            return DatabaseDiskError, f"{text}: the disk is full"
    return DatabaseError, text


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _identify(connection: sqlite3.Connection, url: str, read_only: bool) -> None:
    if not _is_new(connection):
        _require_ours(connection, url)
        return
    if read_only:
        raise DatabaseError(url, "it is empty")
    connection.execute("BEGIN IMMEDIATE")
    try:
        if _is_new(connection):  # unless another process was faster
            create(connection)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    _require_ours(connection, url)


def _is_new(connection: sqlite3.Connection) -> bool:
    marked = _pragma(connection, "application_id") or _pragma(connection, "user_version")
    return not marked and not connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()


def _require_ours(connection: sqlite3.Connection, url: str) -> None:
    if _pragma(connection, "application_id") != APPLICATION_ID:
        raise DatabaseForeignError(url, "it is a SQLite database of another program")
    version = _version(connection)
    if version < 1:
        raise DatabaseDamagedError(url, f"it has schema version {version}, which never existed")
    if version > SCHEMA_VERSION:
        raise DatabaseVersionError(url, f"it has schema version {version}, this Collage reads up to {SCHEMA_VERSION}")


def _version(connection: sqlite3.Connection) -> int:
    return _pragma(connection, "user_version")


def _upgrade(connection: sqlite3.Connection) -> None:
    """Give a database of an older version the tables of this one, all or not at all."""
    if _version(connection) == SCHEMA_VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        if _version(connection) < SCHEMA_VERSION:  # unless another process was faster
            upgrade(connection)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _upgraded_copy(connection: sqlite3.Connection, *, salvage: bool) -> sqlite3.Connection:
    """Return a copy in memory that is up to date and cannot be written, and close the connection.

    Args:
        connection: To the database.
        salvage: Whether it may be damaged: what can be read of it is copied then.
    """
    copy = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    try:
        if salvage:
            copy_readable(connection, copy)
        else:
            connection.backup(copy)
        _upgrade(copy)
        copy.execute("PRAGMA query_only = ON")
    except BaseException:
        copy.close()
        raise
    connection.close()
    return copy


def _require_writable(connection: sqlite3.Connection) -> None:
    # SQLite opens a file it may not write for reading, and says so only at the first write. This is one, and taken
    # back; to begin a transaction is not enough: of such a file SQLite quietly begins one that reads.
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(f"PRAGMA user_version = {_pragma(connection, 'user_version')}")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _require_sound(connection: sqlite3.Connection, url: str) -> None:
    [found] = connection.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        why = " ".join(str(found).removeprefix("*** in database main ***").split())
        raise DatabaseDamagedError(url, f"its pages do not hold together ({why[:200]})")


def _use_write_ahead_log(connection: sqlite3.Connection, busy_timeout_s: float) -> None:
    # Changing the journal needs the file for itself for a moment, and does not always wait for that.
    deadline = time.monotonic() + busy_timeout_s
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return
