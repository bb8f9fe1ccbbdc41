"""Tables on a PostgreSQL server, in a schema of their own."""

from __future__ import annotations

from typing import Final

from collage.store.sql.session import Session

NAMESPACE: Final = "collage"
"""The schema that has the tables."""
SCHEMA_VERSION: Final = 1
_LOCK: Final = 0x436F6C67  # "Colg": held by who makes or changes tables

# Of an attempt, `begun` counts; `machine`, `pid` and `started` are a `Claimant`, `seen` is when it last began one.
_TABLES: Final = (
    """CREATE TABLE record (
        id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        content_id TEXT NOT NULL UNIQUE,
        structural_hash TEXT NOT NULL, target TEXT NOT NULL, fingerprint TEXT NOT NULL,
        host TEXT NOT NULL, threads BIGINT NOT NULL, launch TEXT NOT NULL,
        timing TEXT NOT NULL, plugin TEXT NOT NULL,
        purpose TEXT NOT NULL, outcome TEXT NOT NULL,
        body TEXT NOT NULL
    )""",
    # not the whole key: a fingerprint can be longer than an entry of an index may be (a third of a page)
    "CREATE INDEX record_by_hash ON record USING hash (structural_hash)",
    """CREATE TABLE attempt (
        structural_hash TEXT NOT NULL, target TEXT NOT NULL, fingerprint TEXT NOT NULL,
        host TEXT NOT NULL, threads BIGINT NOT NULL, launch TEXT NOT NULL,
        timing TEXT NOT NULL, plugin TEXT NOT NULL,
        machine TEXT NOT NULL, pid BIGINT NOT NULL, started DOUBLE PRECISION NOT NULL,
        begun BIGINT NOT NULL, seen DOUBLE PRECISION NOT NULL,
        PRIMARY KEY
            (structural_hash, target, fingerprint, host, threads, launch, timing, plugin, machine, pid, started)
    )""",
    """CREATE TABLE content (
        checksum TEXT PRIMARY KEY, size BIGINT NOT NULL, place TEXT NOT NULL, data BYTEA NOT NULL
    )""",
    """CREATE TABLE blob (
        toolchain TEXT NOT NULL, fingerprint TEXT NOT NULL, key TEXT NOT NULL,
        checksum TEXT NOT NULL REFERENCES content,
        PRIMARY KEY (toolchain, fingerprint, key)
    )""",
    "CREATE INDEX blob_by_checksum ON blob (checksum)",
    """CREATE TABLE document (
        kind TEXT NOT NULL, name TEXT NOT NULL, version BIGINT NOT NULL, body TEXT NOT NULL,
        written DOUBLE PRECISION NOT NULL,
        PRIMARY KEY (kind, name)
    )""",
)


def found_version(session: Session) -> int:
    """Return the version of the tables; 0 if there are none."""
    # of the catalogue itself: what `to_regclass` says may be as old as the transaction, which waits for a lock
    tables = "SELECT 1 FROM pg_catalog.pg_tables WHERE schemaname = ? AND tablename = 'schema_version'"
    if not session.rows(tables, (NAMESPACE,)):
        return 0
    [(version,)] = session.rows(f"SELECT version FROM {NAMESPACE}.schema_version")
    return int(version)


def bring_up_to_date(session: Session) -> None:
    """Make the tables, or make those of an older version these; of many that come at once, one does it."""
    session.rows("SELECT pg_advisory_xact_lock(?)", (_LOCK,))
    if found_version(session) >= SCHEMA_VERSION:
        return
    # looked at first: who may not create schemas may use one that was made for them
    if not session.rows("SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = ?", (NAMESPACE,)):
        session.change(f"CREATE SCHEMA {NAMESPACE}")
    for statement in _TABLES:
        session.change(statement)
    session.change("CREATE TABLE schema_version (version BIGINT NOT NULL)")
    session.change("INSERT INTO schema_version (version) VALUES (?)", (SCHEMA_VERSION,))
