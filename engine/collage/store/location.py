"""Locate the tuning database."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import platformdirs

from collage.store.errors import DatabaseNameError
from collage.store.memory import MemoryStore
from collage.store.sqlite import SqliteStore
from collage.store.tuning_store import TuningStore

VARIABLE = "COLLAGE_TUNING_DB"
"""Environment variable with the default location of the database."""


def default_path() -> Path:
    """Return the path of the user's own database.

    It is kept among the user's data, not the caches: measurements that took hours must not be deleted together with
    files that can be downloaded again.
    """
    return platformdirs.user_data_path("collage", appauthor=False) / "tuning.sqlite3"


def open_database(
    url: str | os.PathLike[str] | None = None,
    *,
    read_only: bool = False,
    salvage: bool = False,
    environment: Mapping[str, str] = os.environ,
) -> TuningStore:
    """Open a tuning database; create it if it does not exist.

    Args:
        url: `sqlite:///relative/path`, `sqlite:////absolute/path`, a plain path, or `memory:` for a database that
            ends with the process. If absent, the value of the environment variable `COLLAGE_TUNING_DB`; if that is
            unset, `default_path()`.
        read_only: Open for reading; the database must exist.
        salvage: Open for reading although it is damaged, to recover what is left.
        environment: The environment variables.

    Raises:
        DatabaseError: If it cannot be used; an existing file is left unchanged.
        DatabaseNameError: If `url` does not name a database.

    Examples:
        >>> with open_database("memory:") as store:
        ...     store.stats().records
        0
    """
    file = database_file(url, environment=environment)
    if file is None:
        return MemoryStore()
    return SqliteStore(file, read_only=read_only or salvage, salvage=salvage)


def database_file(
    url: str | os.PathLike[str] | None = None, *, environment: Mapping[str, str] = os.environ
) -> Path | None:
    """Return the file of a tuning database, whether it exists or not; None if it is kept in memory.

    Args:
        url: See `open_database`.
        environment: The environment variables.

    Raises:
        DatabaseNameError: If `url` does not name a database.
    """
    named = os.fspath(url) if url is not None else environment.get(VARIABLE) or default_path()
    text = os.fspath(named)
    if text in ("memory:", "sqlite:///:memory:", ":memory:"):
        return None
    if text.startswith("sqlite:"):
        if not text.startswith("sqlite:///") or not text.removeprefix("sqlite:///"):
            raise DatabaseNameError(text, "write sqlite:/// and then the path")
        text = text.removeprefix("sqlite:///")
    elif "://" in text or not text:
        raise DatabaseNameError(text, "it is not sqlite:///PATH, a path or memory:")
    return Path(text).expanduser()
