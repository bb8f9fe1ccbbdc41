"""What this process ran on processors, and how long it waited for one, by the kernel's accounts.

Linux keeps both for every thread in `/proc/self/task/*/schedstat`: nanoseconds spent on a processor, nanoseconds spent
runnable but waiting for one, and the number of time slices (kernel documentation, `scheduler/sched-stats.rst`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from pathlib import Path
from typing import Final

import psutil

_THREADS: Final = Path("/proc/self/task")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorTime:
    """Sums over the threads of a process, since they began.

    Attributes:
        running_ns: On a processor.
        waiting_ns: Runnable, while another thread had the processor, of this process or another.
    """

    running_ns: int
    waiting_ns: int


def processor_time() -> ProcessorTime | None:
    """Return what this process's threads had so far; None where the system does not say."""
    running = waiting = 0
    try:
        for thread in os.listdir(_THREADS):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
                own_running, own_waiting, _ = (_THREADS / thread / "schedstat").read_bytes().split()
                running += int(own_running)
                waiting += int(own_waiting)
    except (OSError, ValueError):
        return None
    return ProcessorTime(running_ns=running, waiting_ns=waiting) if running else None


def others_had(before: ProcessorTime | None, after: ProcessorTime | None, passed_ns: int, count: int) -> float:
    """Return how many processors others had, on average, while this process wanted them; 0 if it is not known.

    Where its own threads kept all processors busy, they waited for each other.

    Args:
        before: What this process had at the beginning.
        after: At the end.
        passed_ns: Time between, in nanoseconds.
        count: Processors that it may run on.
    """
    if before is None or after is None or passed_ns <= 0:
        return 0.0
    waiting = (after.waiting_ns - before.waiting_ns) / passed_ns
    running = (after.running_ns - before.running_ns) / passed_ns
    return max(0.0, min(waiting, count - running))


def machine_ran_ns() -> int | None:
    """Return for how long all processors of the machine ran anything so far, in nanoseconds; None if it does not say.

    Known to some 10 ms of each processor.
    """
    try:
        times = psutil.cpu_times()
    except (OSError, ValueError, RuntimeError):
        return None
    idle = {"idle", "iowait", "guest", "guest_nice"}  # guests count in `user` and `nice` already
    ran_s: float = sum(seconds for kind, seconds in times._asdict().items() if kind not in idle)
    return round(1e9 * ran_s)


def processors() -> int:
    """Return how many processors this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
