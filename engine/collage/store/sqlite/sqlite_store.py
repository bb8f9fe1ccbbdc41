"""A tuning store in one SQLite file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from collage.store.blobs.blob_files import BlobFiles
from collage.store.errors import DatabaseDamagedError, DatabaseError
from collage.store.records import TuningRecord
from collage.store.sql.sql_store import SqlStore
from collage.store.sqlite.sqlite_database import SqliteDatabase
from collage.store.tuning_store import Damaged


class SqliteStore(SqlStore):
    """See `TuningStore`.

    Args:
        path: The file; created, with its directory, unless `read_only`. One of an older version is brought up to date;
            opened for reading it stays as it is, and a copy in memory is.
        read_only: Open for reading; the file must exist.
        busy_timeout_s: How long to wait for another process that writes.
        salvage: Open a damaged file for reading; with `read_only`.
        files: See `SqlStore`.

    Raises:
        DatabaseError: If it is not a tuning database that this version can use; the file is left unchanged.
    """

    def __init__(
        self,
        path: Path,
        *,
        read_only: bool = False,
        busy_timeout_s: float = 30.0,
        salvage: bool = False,
        files: BlobFiles | None = None,
    ) -> None:
        self._sqlite = SqliteDatabase(path, read_only=read_only, busy_timeout_s=busy_timeout_s, salvage=salvage)
        super().__init__(self._sqlite, files)

    def all_records(self, damaged: Damaged | None = None) -> Iterator[TuningRecord]:
        """See `TuningStore`."""
        return super().all_records() if damaged is None else self._readable_records(damaged)

    def _readable_records(self, damaged: Damaged) -> Iterator[TuningRecord]:
        # A record is in the table and in two indexes, all with its id: what is lost in one is found by another.
        ids: set[int] = set()
        for by in ("NOT INDEXED", "INDEXED BY record_by_key", "INDEXED BY sqlite_autoindex_record_1"):
            try:
                for (number,) in self._sqlite.each(f"SELECT id FROM record {by}"):
                    ids.add(number)
            except DatabaseError as error:
                damaged(error)
        query = "SELECT content_id, body FROM record WHERE id = ?"
        for number in sorted(ids):
            try:
                rows = self._rows(query, (number,))
                if not rows:
                    raise DatabaseDamagedError(self.url, f"record {number} is in an index only")
                found = self._record(*rows[0])
            except DatabaseError as error:
                damaged(error)
                continue
            yield found
