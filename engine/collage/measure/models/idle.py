"""Keep the process that prepares and evaluates models between two uses: starting one takes a second.

One command needs it twice, and a program that optimizes one model compares it next. A process is taken again only where
a new one would be no different: it answered everything it was asked, gave back its memory, and was started with the
same environment, folder and limits of the system. It ends with this process.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import os
import resource
import threading
from typing import Final

from collage.measure.driver.child import ChildProcess

_HEEDED: Final = ("COLLAGE_", "GLIBC_", "LD_", "MALLOC_", "MKL_", "OMP_", "OPENBLAS_", "PYTHON")
"""Beginnings of the names of environment variables that such a process or its libraries heed."""
_MOST_BYTES: Final = 96 << 20
"""Memory above which a process is ended: what it still holds counts towards the next model's limit. It has 42 MiB when
nothing was asked yet.
"""


@dataclasses.dataclass(frozen=True, slots=True)
class _Idle:
    child: ChildProcess
    limit_bytes: int
    owner: int
    began_in: object


_LOCK = threading.Lock()
_kept: list[_Idle] = []


def keep(child: ChildProcess, limit_bytes: int, began_in: object) -> None:
    """Keep a process that answered all requests for its next use, or end it if there is one already.

    Args:
        child: The process; it is no longer the caller's.
        limit_bytes: Most memory a model may take in it.
        began_in: The `surroundings` in which it was started.
    """
    if child.alive and child.held_bytes <= _MOST_BYTES:
        with _LOCK:
            if not _kept:
                _kept.append(_Idle(child, limit_bytes, os.getpid(), began_in))
                return
    child.kill()


def take(limit_bytes: int) -> ChildProcess | None:
    """Return the idle process; None if there is none like one that would be started now.

    Args:
        limit_bytes: Memory that a model may take in it.
    """
    with _LOCK:
        if not _kept or _kept[0].owner != os.getpid():  # a copy of the process that started it has no say over it
            return None
        idle = _kept.pop()
    if not idle.child.alive or idle.limit_bytes != limit_bytes or idle.began_in != surroundings():
        idle.child.kill()
        return None
    idle.child.begin_anew()
    return idle.child


def surroundings() -> object:
    """Return what a process started now would inherit: environment, folder, and limits."""
    try:
        folder = os.getcwd()
    except OSError:  # it may be gone
        folder = ""
    limits = [resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")]
    return {name: text for name, text in os.environ.items() if name.startswith(_HEEDED)}, folder, limits


@atexit.register
def _end() -> None:
    with _LOCK, contextlib.suppress(OSError):
        while _kept:
            if (idle := _kept.pop()).owner == os.getpid():
                idle.child.kill()
