"""Errors of the tuning database: what is wrong with it, and what to do."""

from __future__ import annotations

from collage_core.errors import CollageError, UsageError


class DatabaseError(CollageError):
    """The tuning database cannot be used.

    Attributes:
        source: Its URL or path.
        reason: What is wrong with it.
    """

    advice = "Name another with --tuning-db, or COLLAGE_TUNING_DB."

    def __init__(self, source: str, reason: str) -> None:
        self.source = source
        self.reason = reason
        super().__init__(f"cannot use the tuning database {source!r}: {reason}. {self.advice}")


class DatabaseForeignError(DatabaseError):
    """The file belongs to another program; it was left as it is."""


class DatabaseVersionError(DatabaseError):
    """A newer or an older Collage wrote the file; it was left as it is."""

    advice = (
        "Move it away to start afresh, use the version that wrote it, or name another with --tuning-db or "
        "COLLAGE_TUNING_DB."
    )


class ExportVersionError(DatabaseVersionError):
    """A newer or an older Collage wrote the export; nothing of it was imported."""

    advice = "Import it with the version that wrote it, or measure anew."


class DatabaseDamagedError(DatabaseError):
    """The file is truncated or altered."""

    advice = "Move it away to start afresh; `collage db export` saves what can still be read."


class DatabaseReadOnlyError(DatabaseError):
    """The file, its directory or the way it was opened does not allow writing."""


class DatabaseDiskError(DatabaseError):
    """The disk is full or failing; data acknowledged before is kept."""

    advice = "Make room on its disk, or name another with --tuning-db or COLLAGE_TUNING_DB."


class DatabaseLockedError(DatabaseError):
    """Another process kept the file locked for too long."""

    advice = "End that process, or try again."


class DatabaseUnreachableError(DatabaseError):
    """The server does not answer; what it acknowledged before is kept there."""

    advice = "See that it runs and may be reached from here, and try again; or name another with --tuning-db."


class DatabaseNameError(DatabaseError, UsageError):
    """The given text does not name a database."""
