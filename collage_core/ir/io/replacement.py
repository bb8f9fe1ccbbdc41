"""Replace files atomically: the path always holds the complete old or the complete new file."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from types import TracebackType


class Replacement:
    """A file written under a temporary name beside its destination and renamed when it is complete.

    Use it as a context manager: leaving without an exception puts the file in place, otherwise the old file is
    kept. A new file gets the process's default permissions, a replacement those of the old file. A link is
    preserved: its target is replaced.

    Args:
        path: Path of the destination.

    Attributes:
        stream: Stream to write to.

    Raises:
        OSError: If the file cannot be written; an earlier file is then unchanged.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._place = Path(os.path.realpath(path))
        self._temporary = self._place.with_name(f".{self._place.name}.{os.urandom(4).hex()}")
        # of the mode of any new file: the system applies the umask, which can only be asked for by setting it
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self.stream = os.fdopen(os.open(self._temporary, flags, 0o666), "w+b")
        try:
            with contextlib.suppress(FileNotFoundError):
                os.fchmod(self.stream.fileno(), stat.S_IMODE(self._place.stat().st_mode))
        except OSError:
            self.discard()
            raise

    def __enter__(self) -> Replacement:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.finish()
                self.put_in_place()
        finally:
            self.discard()

    def finish(self) -> None:
        """Flush the written data to disk and close the stream."""
        self.stream.flush()
        os.fsync(self.stream.fileno())  # or a machine that stops may keep the new name without the content
        self.stream.close()

    def put_in_place(self) -> None:
        """Give it its name, after `finish`."""
        os.replace(self._temporary, self._place)

    def discard(self) -> None:
        """Remove what is not in place."""
        with contextlib.suppress(OSError):  # after a failure, of a full disk above all, closing fails too
            self.stream.close()
        self._temporary.unlink(missing_ok=True)
