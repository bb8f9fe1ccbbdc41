"""Tables of the SQLite file, and how those of older versions become these."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from typing import Any, Final

from collage.store.records import TuningRecord, content_id, loads, structure, to_json

APPLICATION_ID: Final = 0x436F6C67  # "Colg"
SCHEMA_VERSION: Final = 6

# Of an attempt, `begun` counts; `machine`, `pid` and `started` are a `Claimant`, `seen` is when it last began one.
TABLES: Final = {
    "record": """CREATE TABLE record (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        content_id TEXT NOT NULL UNIQUE,
        structural_hash TEXT NOT NULL, target TEXT NOT NULL, fingerprint TEXT NOT NULL,
        host TEXT NOT NULL, threads INTEGER NOT NULL, launch TEXT NOT NULL,
        timing TEXT NOT NULL, plugin TEXT NOT NULL,
        purpose TEXT NOT NULL, outcome TEXT NOT NULL,
        body TEXT NOT NULL
    )""",
    "record_by_key": """CREATE INDEX record_by_key ON record
        (structural_hash, target, fingerprint, host, threads, launch, timing, plugin, purpose, id)""",
    "attempt": """CREATE TABLE attempt (
        structural_hash TEXT NOT NULL, target TEXT NOT NULL, fingerprint TEXT NOT NULL,
        host TEXT NOT NULL, threads INTEGER NOT NULL, launch TEXT NOT NULL,
        timing TEXT NOT NULL, plugin TEXT NOT NULL,
        machine TEXT NOT NULL, pid INTEGER NOT NULL, started REAL NOT NULL,
        begun INTEGER NOT NULL, seen REAL NOT NULL,
        PRIMARY KEY
            (structural_hash, target, fingerprint, host, threads, launch, timing, plugin, machine, pid, started)
    ) WITHOUT ROWID""",
    "content": """CREATE TABLE content (
        checksum TEXT PRIMARY KEY, size INTEGER NOT NULL, place TEXT NOT NULL, data BLOB NOT NULL
    )""",
    "blob": """CREATE TABLE blob (
        toolchain TEXT NOT NULL, fingerprint TEXT NOT NULL, key TEXT NOT NULL, checksum TEXT NOT NULL,
        PRIMARY KEY (toolchain, fingerprint, key)
    )""",
    "blob_by_checksum": "CREATE INDEX blob_by_checksum ON blob (checksum)",
    "document": """CREATE TABLE document (
        kind TEXT NOT NULL, name TEXT NOT NULL, version INTEGER NOT NULL, body TEXT NOT NULL, written REAL NOT NULL,
        PRIMARY KEY (kind, name)
    )""",
}


def create(connection: sqlite3.Connection) -> None:
    """Make the tables, in the transaction of the caller."""
    for statement in TABLES.values():
        connection.execute(statement)
    _sign(connection)


def upgrade(connection: sqlite3.Connection) -> None:
    """Make the tables of an older version those of this one, in the transaction of the caller.

    Records are kept if they can be read, under keys that say that what older versions did not note is unknown: no
    search uses their times, and exports have them. Attempts end. Documents are kept; before version 3 there were none.
    """
    for table in ("record", "attempt", "blob", "document", "plan"):
        if _has(connection, table):
            connection.execute(f"ALTER TABLE {table} RENAME TO old_{table}")
    connection.execute("DROP INDEX IF EXISTS record_by_key")
    create(connection)
    for (body,) in connection.execute("SELECT body FROM old_record ORDER BY id").fetchall():
        _keep(connection, body)
    for row in connection.execute("SELECT toolchain, fingerprint, key, checksum, data FROM old_blob"):
        checksum, data = row[3:]
        connection.execute(
            "INSERT OR IGNORE INTO content (checksum, size, place, data) VALUES (?, ?, '', ?)",
            (checksum, len(data), data),
        )
        connection.execute("INSERT INTO blob (toolchain, fingerprint, key, checksum) VALUES (?, ?, ?, ?)", row[:4])
    if _has(connection, "old_document"):
        statement = "INSERT INTO document SELECT kind, name, version, body, ? FROM old_document"
        connection.execute(statement, (time.time(),))
    for table in ("record", "attempt", "blob", "document", "plan"):
        connection.execute(f"DROP TABLE IF EXISTS old_{table}")


def copy_readable(source: sqlite3.Connection, copy: sqlite3.Connection) -> None:
    """Copy what can be read of a database that may be damaged: its tables, each up to where reading fails.

    Rows behind the damage are looked for from the other end.

    Args:
        source: The database.
        copy: An empty one.
    """
    tables = source.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table' AND sql IS NOT NULL").fetchall()
    for name, statement in tables:
        if name.startswith("sqlite_"):
            continue
        copy.execute(statement)
        for order in ("", " ORDER BY rowid DESC"):
            with contextlib.suppress(sqlite3.Error):  # a table without rowids has no other end
                for row in source.execute(f"SELECT * FROM {name}{order}"):
                    marks = ", ".join("?" * len(row))
                    copy.execute(f"INSERT OR IGNORE INTO {name} VALUES ({marks})", row)
    for pragma in ("application_id", "user_version"):
        [(number,)] = source.execute(f"PRAGMA {pragma}").fetchall()
        copy.execute(f"PRAGMA {pragma} = {number}")


def _sign(connection: sqlite3.Connection) -> None:
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _has(connection: sqlite3.Connection, table: str) -> bool:
    found = connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (table,))
    return found.fetchone() is not None


def _keep(connection: sqlite3.Connection, body: str) -> None:
    """Add a record of an older version; one that cannot be read is left out."""
    try:
        record = structure(_completed(loads(body)), TuningRecord)
    except ValueError:
        return
    text = to_json(record)
    key = record.key
    connection.execute(
        "INSERT OR IGNORE INTO record "
        "(content_id, structural_hash, target, fingerprint, host, threads, launch, timing, plugin, purpose, outcome, "
        "body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *(content_id(text), key.structural_hash, key.target, key.fingerprint, key.host, key.threads),
            *(key.launch, key.timing, key.plugin, record.purpose, record.outcome, text),
        ),
    )


def _completed(body: Any) -> Any:
    """Return a record with what versions before 4 lack: how samples were taken, and their blocks."""
    if not isinstance(body, dict) or not isinstance(body.get("key"), dict):
        return body
    return {"blocks": [], **body, "key": {"timing": "unknown", **body["key"]}}
