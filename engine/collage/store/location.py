"""Where the tuning database is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import platformdirs

from collage.errors import DatabaseNameError
from collage.store.memory import MemoryStore
from collage.store.sqlite import SqliteStore
from collage.store.tuning_store import TuningStore

VARIABLE = "COLLAGE_TUNING_DB"
"""Environment variable that names the database where the user names none."""


def default_path() -> Path:
    """The user's own database.

    Among the user's data, not their caches: what cost hours to measure is not to be swept away with what can be
    downloaded again.
    """
    return platformdirs.user_data_path("collage", appauthor=False) / "tuning.sqlite3"


def open_database(
    url: str | os.PathLike[str] | None = None,
    *,
    read_only: bool = False,
    salvage: bool = False,
    environment: Mapping[str, str] = os.environ,
) -> TuningStore:
    """Opens a tuning database, making it where there is none.

    Args:
        url: `sqlite:///relative/path`, `sqlite:////absolute/path`, a plain path, or `memory:` for one that ends
            with the process. If absent, what the environment variable `COLLAGE_TUNING_DB` says; if it says
            nothing, `default_path()`.
        read_only: Open for reading; there must be one.
        salvage: Open for reading although it is damaged, to save what is left.
        environment: The environment variables.

    Raises:
        DatabaseError: If it cannot be used; whatever is there is left as it was.
        DatabaseNameError: If `url` names no database.

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
    """The file of a tuning database, whether it is there or not; None if it is kept in memory.

    Args:
        url: See `open_database`.
        environment: The environment variables.

    Raises:
        DatabaseNameError: If `url` names no database.
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
