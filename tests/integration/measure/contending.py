"""Calls for contender processes."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path


def sleeper(seconds: float, dies_after: int = -1) -> Callable[[], None]:
    runs = 0

    def call() -> None:
        nonlocal runs
        runs += 1
        if runs == dies_after:
            os.abort()
        print("noise")
        time.sleep(seconds)

    return call


def broken() -> Callable[[], None]:
    raise RuntimeError("no such model")


def stuck() -> Callable[[], None]:
    return lambda: time.sleep(3600)


def littering(note: str) -> Callable[[], None]:
    Path(note).write_text(tempfile.mkdtemp(), encoding="utf-8")
    return lambda: time.sleep(0.001)


def hoarding(mib: int) -> Callable[[], None]:
    held = bytearray(b"x" * (mib << 20))
    time.sleep(0.5)  # long enough to be seen
    return lambda: time.sleep(0.001 * bool(held))
