"""The tuning store in one SQLite file, which is the default."""

from collage.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
