"""Tuning records, caches of toolchains and plans, kept between runs; in SQLite by default."""

from collage.store.location import database_file, default_path, open_database
from collage.store.memory import MemoryStore
from collage.store.records import BlobSpace, Outcome, Purpose, RecordKey, TuningRecord
from collage.store.sqlite import SqliteStore
from collage.store.transfer import Transferred, export_lines, import_lines, merge
from collage.store.tuning_store import MAX_ATTEMPTS, Removed, StoredBlobs, StoreStats, TuningStore

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
