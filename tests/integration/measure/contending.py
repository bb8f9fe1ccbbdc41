"""Calls for contender processes."""

from __future__ import annotations

import functools
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


def session_like(seconds: float, kept: str) -> Callable[[], None]:
    """Runs in no time, and as users call it in some; tells how many results live at once."""
    live = [0, 0]

    class Result:
        def __init__(self) -> None:
            live[0] += 1
            live[1] = max(live)
            Path(kept).write_text(str(live[1]), encoding="utf-8")

        def __del__(self) -> None:
            live[0] -= 1

    def as_called() -> Result:
        time.sleep(seconds)
        return Result()

    call = functools.partial(time.sleep, 0)
    call.as_called = as_called  # type: ignore[attr-defined]
    return call


def in_steps(order: str) -> Callable[[], None]:
    """Has two steps, which write down in which order they run."""

    def step(name: str, seconds: float) -> None:
        time.sleep(seconds)
        with open(order, "a", encoding="utf-8") as file:
            file.write(name)

    call = functools.partial(time.sleep, 0)
    call.parts = {  # type: ignore[attr-defined]
        "short": functools.partial(step, "s", 0.001),
        "long": functools.partial(step, "l", 0.02),
    }
    return call


def broken() -> Callable[[], None]:
    raise RuntimeError("no such model")


def stuck(after: str) -> Callable[[], None]:
    """Hangs once there is a file."""

    def call() -> None:
        while not Path(after).exists():
            time.sleep(0.01)
        with open(os.environ["HANGS"], "ab") as hangs:
            hangs.write(b"!")
        time.sleep(3600)

    return call


def littering(note: str) -> Callable[[], None]:
    Path(note).write_text(tempfile.mkdtemp(), encoding="utf-8")
    return lambda: time.sleep(0.001)


def hoarding(mib: int, load_s: float = 0.0) -> Callable[[], None]:
    held = bytearray(b"x" * (mib << 20))
    time.sleep(load_s)
    return lambda: time.sleep(0.001 * bool(held))
