"""Count the threads that calls of a kernel keep busy."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

_CALLS: Final = 16
_BUSY: Final = 0.2
"""Share of the busiest thread's time from which a thread counts. A pool's idle threads wake up for less."""


def threads_here() -> frozenset[int]:
    """Return the threads of this process; none where the system does not list them."""
    try:
        return frozenset(int(name) for name in os.listdir("/proc/self/task"))
    except OSError:
        return frozenset()


def busy_threads(call: Callable[[], object], before: frozenset[int]) -> int:
    """Call a kernel repeatedly, and count the threads that were busy meanwhile: of this one, and of those it started.

    Times are those of the processor (`schedstat` of the Linux kernel's procfs), so a busy machine changes nothing.

    Args:
        call: The kernel's call.
        before: Threads of the process before the kernel was loaded; they are somebody else's.

    Returns:
        The number of busy threads; 0 where the system does not say.
    """
    first = _spent_ns()
    for _ in range(_CALLS):
        call()
    spent = {thread: ns - first.get(thread, 0) for thread, ns in _spent_ns().items()}
    most = max(spent.values(), default=0)
    others = before - {threading.get_native_id()}
    return sum(ns >= _BUSY * most for thread, ns in spent.items() if thread not in others)


def _spent_ns() -> dict[int, int]:
    found = {}
    for thread in threads_here():
        try:
            found[thread] = int(Path(f"/proc/self/task/{thread}/schedstat").read_text(encoding="ascii").split()[0])
        except (OSError, ValueError, IndexError):  # it has ended, or the kernel keeps no such numbers
            continue
    return found
