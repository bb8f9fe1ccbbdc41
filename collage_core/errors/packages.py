"""A saved package, its record, or what a session of it is given."""

from __future__ import annotations

from collage_core.errors.base import CollageError, UsageError


class FeedError(UsageError):
    """What was given to a session does not fit its inputs or outputs.

    Attributes:
        value: The input or output concerned.
        reason: What is wrong, and what is expected.
    """

    def __init__(self, value: str, reason: str) -> None:
        self.value = value
        self.reason = reason
        super().__init__(f"{value!r}: {reason}")


class PackageError(CollageError):
    """A `.collage` file cannot be written, read or trusted.

    Attributes:
        path: The file.
        reason: What is wrong with it.
    """

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path!r}: {reason}")


class NotAPackageError(PackageError):
    """The file is something else."""


class PackageVersionError(PackageError):
    """The file was written by a newer Collage, in a format this one does not know."""


class PackageDamagedError(PackageError):
    """The file is truncated, altered, or made to do harm."""


class RecordError(CollageError):
    """A record cannot be read.

    Attributes:
        source: The file or package it is from.
        reason: What is wrong with it.
    """

    def __init__(self, source: str, reason: str) -> None:
        self.source = source
        self.reason = reason
        super().__init__(
            f"cannot read the record of {source!r}: {reason}. "
            "Optimize the model again, or use the Collage version that wrote it."
        )
