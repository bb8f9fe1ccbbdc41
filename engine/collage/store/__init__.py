"""Tuning records, caches of toolchains and documents, kept between runs; in SQLite by default."""

from collage.store.cleaning import toolchain_of, unusable
from collage.store.documents import Document, document_from_bytes, document_to_bytes
from collage.store.location import database_file, default_path, is_shared, open_database, shown_name
from collage.store.memory import MemoryStore
from collage.store.normalised import MachineSpeed, block_times_us, usual_factor
from collage.store.plugin_versions import applicable
from collage.store.records import (
    BlobSpace,
    Outcome,
    Purpose,
    RecordKey,
    StoredDocument,
    TuningRecord,
    of_any_plugin,
    timing_beside,
)
from collage.store.sqlite.sqlite_store import SqliteStore
from collage.store.subjects import KernelOfModel, ModelKernels, kernels_of, plan_name, plan_subject
from collage.store.transfer import Transferred, export_lines, import_lines, lines_of, merge
from collage.store.tuning_store import MAX_ATTEMPTS, MAX_BLOB_BYTES, Removal, StoredBlobs, StoreStats, TuningStore

__all__ = [
    "MAX_ATTEMPTS",
    "MAX_BLOB_BYTES",
    "BlobSpace",
    "Document",
    "KernelOfModel",
    "MachineSpeed",
    "MemoryStore",
    "ModelKernels",
    "Outcome",
    "Purpose",
    "RecordKey",
    "Removal",
    "SqliteStore",
    "StoreStats",
    "StoredBlobs",
    "StoredDocument",
    "Transferred",
    "TuningRecord",
    "TuningStore",
    "applicable",
    "block_times_us",
    "database_file",
    "default_path",
    "document_from_bytes",
    "document_to_bytes",
    "export_lines",
    "import_lines",
    "is_shared",
    "kernels_of",
    "lines_of",
    "merge",
    "of_any_plugin",
    "open_database",
    "plan_name",
    "plan_subject",
    "shown_name",
    "timing_beside",
    "toolchain_of",
    "unusable",
    "usual_factor",
]
