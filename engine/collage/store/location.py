"""Locate the tuning database."""

from __future__ import annotations

import os
import stat
import urllib.parse
import warnings
from collections.abc import Mapping
from pathlib import Path

import platformdirs

from collage.store.blobs.blob_files import BlobFiles, BlobFolder
from collage.store.blobs.own_trust import OwnTrust
from collage.store.errors import DatabaseError, DatabaseNameError
from collage.store.memory import MemoryStore
from collage.store.sqlite.sqlite_store import SqliteStore
from collage.store.tuning_store import TuningStore

VARIABLE = "COLLAGE_TUNING_DB"
"""Environment variable with the default location of the database."""
BLOBS_VARIABLE = "COLLAGE_BLOBS"
"""Environment variable with the folder, or the URL of an object store, that has large blobs."""
TRUST_VARIABLE = "COLLAGE_TRUST_SHARED_BLOBS"
"""Environment variable that is `1` if who may write to a shared database may run code here; see `OwnTrust`."""
_SERVERS = ("postgresql", "postgres")
_FORMS = "it is not sqlite:///PATH, postgresql://..., a path, @FILE or memory:"
_SECRET = "a password in a command line or a script can be read by others; put it into ~/.pgpass, PGPASSWORD or a file"
_LONGEST_URL = 10_000


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
        url: `sqlite:///relative/path`, `sqlite:////absolute/path`, a plain path, `postgresql://...` for a server,
            `@FILE` for a file that has one of these, or `memory:` for a database that ends with the process. If absent,
            the value of the environment variable `COLLAGE_TUNING_DB`; if that is unset, `default_path()`. Only the
            variable and the file may have a password in it.
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
    text = _named(url, environment)
    if _is_server(text):
        return _open_server(text, environment, read_only=read_only or salvage)
    file = _file(text)
    if file is None:
        return MemoryStore()
    return SqliteStore(file, read_only=read_only or salvage, salvage=salvage, files=_blob_files(environment))


def database_file(
    url: str | os.PathLike[str] | None = None, *, environment: Mapping[str, str] = os.environ
) -> Path | None:
    """Return the file of a tuning database, whether it exists or not; None if it is in memory or on a server.

    Args:
        url: See `open_database`.
        environment: The environment variables.

    Raises:
        DatabaseNameError: If `url` does not name a database.
    """
    text = _named(url, environment)
    return None if _is_server(text) else _file(text)


def shown_name(*, environment: Mapping[str, str] = os.environ) -> str:
    """Return how the database that is used unless another is named may be shown: without user, password and options.

    Args:
        environment: The environment variables.
    """
    text = environment.get(VARIABLE) or os.fspath(default_path())
    if text.startswith("@") or not _is_server(text):
        return text
    try:
        parts = urllib.parse.urlsplit(text)
        port = "" if parts.port is None else f":{parts.port}"
    except ValueError:
        return "postgresql://..."
    return f"postgresql://{parts.hostname or ''}{port}{parts.path}"


def is_shared(url: str | os.PathLike[str] | None = None, *, environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether a tuning database is on a server, where other machines use it.

    Args:
        url: See `open_database`.
        environment: The environment variables.

    Raises:
        DatabaseNameError: If `url` does not name a database.
    """
    return _is_server(_named(url, environment))


def _named(url: str | os.PathLike[str] | None, environment: Mapping[str, str]) -> str:
    """Return the name of a database, read from a file where it is in one."""
    given = None if url is None else os.fspath(url)
    text = given if given is not None else environment.get(VARIABLE) or os.fspath(default_path())
    if text.startswith("@"):
        return _from_file(Path(text[1:]).expanduser())
    if given is not None and _is_server(text) and _has_password(text):
        raise DatabaseNameError("postgresql://...", _SECRET)
    return text


def _from_file(path: Path) -> str:
    """Return the URL that a file has, which others than its owner may not read.

    Raises:
        DatabaseNameError: If they may, or there is none.
    """
    try:
        with path.open(encoding="utf-8") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(_LONGEST_URL).strip()
    except (OSError, ValueError) as error:
        raise DatabaseNameError(f"@{path}", f"the file cannot be read: {error}") from None
    if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise DatabaseNameError(f"@{path}", f"others may read the file: chmod 600 {path}")
    if not text or "\n" in text or text.startswith("@"):
        raise DatabaseNameError(f"@{path}", "the file is to have one line, the URL")
    return text


def _is_server(text: str) -> bool:
    return text.partition("://")[0] in _SERVERS and "://" in text


def _has_password(text: str) -> bool:
    try:
        parts = urllib.parse.urlsplit(text)
        asked = urllib.parse.parse_qs(parts.query)
    except ValueError:  # libpq will say so
        return True
    return parts.password is not None or bool({"password", "sslpassword"} & asked.keys())


def _open_server(url: str, environment: Mapping[str, str], *, read_only: bool) -> TuningStore:
    try:
        from collage.store.postgresql import PostgresStore
    except ImportError as error:
        advice = f"a server needs psycopg ({error}): pip install 'collage-engine[postgresql]'"
        raise DatabaseNameError("postgresql://...", advice) from None
    if environment.get(TRUST_VARIABLE) == "1":
        return PostgresStore(url, read_only=read_only, files=_blob_files(environment))

    def own() -> TuningStore:
        path = default_path()
        if read_only and not path.exists():
            return MemoryStore()
        try:
            return SqliteStore(path, read_only=read_only, files=_blob_files(environment))
        except DatabaseError as error:  # a cache that cannot be kept costs no run on the server
            warnings.warn(f"cached files are kept for this run only: {error}", stacklevel=2)
            return MemoryStore()

    return OwnTrust(PostgresStore(url, read_only=read_only), own)


def _blob_files(environment: Mapping[str, str]) -> BlobFiles | None:
    text = environment.get(BLOBS_VARIABLE)
    if not text:
        return None
    if "://" in text:
        from collage.store.blobs.blob_bucket import BlobBucket

        return BlobBucket(text)
    return BlobFolder(Path(text).expanduser())


def _file(text: str) -> Path | None:
    if text in ("memory:", "sqlite:///:memory:", ":memory:"):
        return None
    if text.startswith("sqlite:"):
        if not text.startswith("sqlite:///") or not text.removeprefix("sqlite:///"):
            raise DatabaseNameError(text, "write sqlite:/// and then the path")
        text = text.removeprefix("sqlite:///")
    elif "://" in text or not text:
        raise DatabaseNameError(text.partition("://")[0] + "://..." if "://" in text else text, _FORMS)
    return Path(text).expanduser()
