"""Bytes of large blobs in a folder, by their SHA-256."""

from __future__ import annotations

import contextlib
import os
import tempfile
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

LEAST_BYTES = 1 << 20
"""Blobs up to this size stay in the database."""


class BlobFiles(Protocol):
    """Where the bytes of large blobs are. Bytes are put under their own checksum, so putting them again is nothing."""

    @property
    def least_bytes(self) -> int:
        """Blobs up to this size, in bytes, stay in the database."""

    def put(self, checksum: str, data: bytes) -> bool:
        """Keep bytes; return whether they are kept. A cache that cannot be kept is said once, and costs no run."""

    def get(self, checksum: str) -> bytes | None:
        """Return the bytes; None if they are not there. The caller compares the checksum."""

    def remove(self, checksums: Iterable[str]) -> None:
        """Remove bytes; what is not there is left out."""


def warn_unkept(where: str, error: Exception) -> None:
    """Warn that bytes are not kept.

    Args:
        where: The place, without secrets.
        error: Why.
    """
    text = " ".join(str(error).split())[:200]
    warnings.warn(f"what toolchains cache is not kept in {where}: {text}", UnkeptBlobWarning, stacklevel=4)


class UnkeptBlobWarning(UserWarning):
    """What toolchains cache cannot be kept where `COLLAGE_BLOBS` says."""


class BlobFolder:
    """See `BlobFiles`; a file each, written as a whole or not at all.

    Args:
        folder: The folder; made when it is first written to.
        least_bytes: See `BlobFiles`.
    """

    def __init__(self, folder: Path, least_bytes: int = LEAST_BYTES) -> None:
        self._folder = folder
        self._least_bytes = least_bytes

    @property
    def least_bytes(self) -> int:
        """See `BlobFiles`."""
        return self._least_bytes

    def put(self, checksum: str, data: bytes) -> bool:
        """See `BlobFiles`."""
        path = self._path(checksum)
        if path.is_file():
            return True
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=".part-")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(name, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(name)
                raise
        except OSError as error:
            warn_unkept(str(self._folder), error)
            return False
        return True

    def get(self, checksum: str) -> bytes | None:
        """See `BlobFiles`."""
        try:
            return self._path(checksum).read_bytes()
        except OSError:
            return None

    def remove(self, checksums: Iterable[str]) -> None:
        """See `BlobFiles`."""
        for checksum in checksums:
            with contextlib.suppress(OSError):
                self._path(checksum).unlink()

    def _path(self, checksum: str) -> Path:
        return self._folder / checksum[:2] / checksum
