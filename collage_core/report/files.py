"""Text files that are either the old one or the whole new one."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Writes a file in UTF-8 under a temporary name beside it, then renames it into place.

    Raises:
        OSError: If it cannot be written; an earlier file is then untouched.
    """
    write_pieces(path, (text,))


def write_pieces(path: str | os.PathLike[str], pieces: Iterable[str]) -> None:
    """Like `write_text`, for text too long to hold at once.

    Raises:
        OSError: If it cannot be written; an earlier file is then untouched.
    """
    final = Path(path)
    handle, temporary = tempfile.mkstemp(prefix=f".{final.name}.", dir=final.parent)
    try:
        # what is no text in the name of a file becomes what JSON writes for it
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace", newline="\n") as stream:
            stream.writelines(pieces)
            stream.flush()
            os.fsync(stream.fileno())  # or a machine that stops may keep the new name without the content
        # mkstemp makes files private to their owner; a report is as readable as any new file
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, final)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
