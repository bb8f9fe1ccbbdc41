"""A tuning store on a PostgreSQL server."""

from __future__ import annotations

from collage.store.blobs.blob_files import BlobFiles
from collage.store.postgresql.postgres_database import PostgresDatabase
from collage.store.sql.sql_store import SqlStore


class PostgresStore(SqlStore):
    """See `TuningStore`. Machines may share it; its tables are made when it is first opened for writing.

    Args:
        url: See `PostgresDatabase`.
        read_only: Open for reading.
        patience_s: See `PostgresDatabase`.
        files: See `SqlStore`.

    Raises:
        DatabaseError: As `PostgresDatabase` does.
    """

    def __init__(
        self, url: str, *, read_only: bool = False, patience_s: float = 60.0, files: BlobFiles | None = None
    ) -> None:
        super().__init__(PostgresDatabase(url, read_only=read_only, patience_s=patience_s), files)
