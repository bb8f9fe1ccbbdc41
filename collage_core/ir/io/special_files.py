"""Tell files from what only looks like one: opening a pipe waits for a writer, a device may never end."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def why_no_file(path: str | os.PathLike[str]) -> str:
    """Say why a path cannot be read as a file; empty for a file, a link to one, and where there is nothing.

    Examples:
        >>> why_no_file("/")
        'it is a directory'
    """
    try:
        mode = Path(path).stat().st_mode
    except (OSError, ValueError):  # opening it says why
        return ""
    if stat.S_ISREG(mode):
        return ""
    if stat.S_ISDIR(mode):
        return "it is a directory"
    kind = "a pipe" if stat.S_ISFIFO(mode) else "a socket" if stat.S_ISSOCK(mode) else "a device"
    return f"it is {kind}, not a file; save its content to a file first"
