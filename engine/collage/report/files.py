"""Replace text files atomically: a reader finds either the old file or the complete new one."""

from __future__ import annotations

import os
from collections.abc import Iterable

from collage_core.ir.io.replacement import Replacement


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a file in UTF-8 under a temporary name beside it, then rename it into place.

    Raises:
        OSError: If it cannot be written; an existing file is then left unchanged.
    """
    write_pieces(path, (text,))


def write_pieces(path: str | os.PathLike[str], pieces: Iterable[str]) -> None:
    """Write a file like `write_text`, for text too long to hold in memory at once.

    Raises:
        OSError: If it cannot be written; an existing file is then left unchanged.
    """
    with Replacement(path) as file:
        for piece in pieces:
            # what is no text in the name of a file becomes what JSON writes for it
            file.stream.write(piece.encode("utf-8", "backslashreplace"))
