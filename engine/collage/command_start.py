"""When the command began whose process this is, however often its watcher started it again."""

from __future__ import annotations

import os

BEGAN = "COLLAGE_BEGAN"
"""Environment variable with the watcher's process and the moment at which it began, by `time.monotonic()`."""


def note_start(began: float, watcher: int) -> None:
    """Tell this process when the command began."""
    os.environ[BEGAN] = f"{watcher} {began!r}"


def command_began() -> float | None:
    """Return when the command began, by `time.monotonic()`; None if this is not the process of a watched command."""
    watcher, _, began = os.environ.get(BEGAN, "").partition(" ")
    return float(began) if began and watcher == str(os.getppid()) else None
