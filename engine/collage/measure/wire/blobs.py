"""Content-addressed bytes on disk, by which weights, models and activations reach the workers.

A worker on the same machine opens the driver's own directory and maps the files it needs, so no weight ever
goes through a pipe. A remote worker has its own directory and requests missing blobs.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from collage.errors import WireError

_BLOB_NAME = re.compile(r"[0-9a-f]{64}")


class BlobStore:
    """Immutable byte strings in one directory, each in a file named by its SHA-256.

    Args:
        directory: Directory of the files; created if it does not exist. Several processes may share it.

    Attributes:
        of_content: Blobs of the weights that this process has put here, by `collage_core.ir.values.content_hash`, which
            counts types and shapes too.

    Examples:
        >>> store = BlobStore(Path(tempfile.mkdtemp()))
        >>> name = store.put(b"weights")
        >>> store.read(name)
        b'weights'
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self._sound: set[str] = set()
        self.of_content: dict[str, str] = {}

    def __contains__(self, name: str) -> bool:
        return self.path(name).exists()

    def path(self, name: str) -> Path:
        """Return the path of a blob, whether or not it exists.

        Raises:
            WireError: If `name` is not a valid blob name; this prevents messages from naming other files.
        """
        if _BLOB_NAME.fullmatch(name) is None:
            raise WireError(f"{name[:80]!r} is not the name of a blob, which is a SHA-256 in hexadecimal")
        return self.directory / name

    def put(self, data: bytes | bytearray | memoryview) -> str:
        """Store `data` atomically and return its name."""
        view = memoryview(data).cast("B")
        name = hashlib.sha256(view).hexdigest()
        path = self.directory / name
        if path.exists():
            return name
        handle, temporary = tempfile.mkstemp(prefix=".blob-", dir=self.directory)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(view)
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        return name

    def read(self, name: str) -> bytes:
        """Return the bytes of a blob.

        Raises:
            WireError: If the blob is missing, or its content does not match its name.
        """
        return bytes(self.map(name))

    def map(self, name: str) -> memoryview:
        """Map a blob's bytes into memory, read-only; the content is verified on first use in this process.

        Raises:
            WireError: If the blob is missing, or its content does not match its name.
        """
        try:
            with open(self.path(name), "rb") as stream:
                if os.fstat(stream.fileno()).st_size:
                    view = memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
                else:
                    view = memoryview(b"")
        except FileNotFoundError as error:
            raise WireError(f"blob {name} is not in {self.directory}; it was deleted, or never sent") from error
        except OSError as error:
            raise WireError(f"blob {name} in {self.directory} cannot be mapped: {error.strerror or error}") from error
        if name not in self._sound:
            if hashlib.sha256(view).hexdigest() != name:
                raise WireError(f"blob {name} in {self.directory} was altered: its bytes are not what its name says")
            self._sound.add(name)
        return view


def drop_pages(value: Any) -> None:
    """Let the system take back the pages of a value of a store that were read; they are read again when needed.

    Args:
        value: Any value; nothing happens if it is not mapped from a file.
    """
    base = value
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview) and isinstance(base.obj, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        base.obj.madvise(mmap.MADV_DONTNEED)
