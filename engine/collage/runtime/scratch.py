"""Create directories that are removed together with their owners."""

from __future__ import annotations

import os
import shutil
import weakref
from pathlib import Path


def removed_with(owner: object, folder: Path) -> None:
    """Remove a directory when `owner` is gone, or this process ends; not when a process forked from it does."""
    weakref.finalize(owner, _remove, folder, os.getpid())


def _remove(folder: Path, made_by: int) -> None:
    if os.getpid() == made_by:
        shutil.rmtree(folder, ignore_errors=True)
