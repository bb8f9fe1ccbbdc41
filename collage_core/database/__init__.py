"""Tuning records, caches of toolchains and plans, kept between runs; in SQLite by default."""

from collage_core.database.location import database_file, default_path, open_database
from collage_core.database.memory import MemoryStore
from collage_core.database.records import BlobSpace, Outcome, Purpose, RecordKey, TuningRecord
from collage_core.database.sqlite import SqliteStore
from collage_core.database.store import (
    MAX_ATTEMPTS,
    Removed,
    StoredBlobs,
    StoreStats,
    TuningStore,
)
from collage_core.database.transfer import Transferred, export_lines, import_lines, merge

__all__ = [
    "MAX_ATTEMPTS",
    "BlobSpace",
    "MemoryStore",
    "Outcome",
    "Purpose",
    "RecordKey",
    "Removed",
    "SqliteStore",
    "StoreStats",
    "StoredBlobs",
    "Transferred",
    "TuningRecord",
    "TuningStore",
    "database_file",
    "default_path",
    "export_lines",
    "import_lines",
    "merge",
    "open_database",
]
