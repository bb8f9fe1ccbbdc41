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
_ALLOWED: Final = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
"""Processors that this process may run on. Asked for early, because a toolchain may bind a thread to one of them."""

OTHERS_MAY: Final = 0.3
"""Processors that others may have while something is timed. A toolchain's own threads wait for each other too, which
looks like a fifth of one, and an idle machine runs some hundredths.
"""


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
    """Return for how long processors that this process may run on ran anything so far, in nanoseconds.

    What a virtual machine's host took of them counts, too. Known to some 10 ms of each processor; None if it is not.
    """
    try:
        times = psutil.cpu_times(percpu=True)
    except (OSError, ValueError, RuntimeError):
        return None
    if _ALLOWED[-1] >= len(times):  # a container's own view, in which processors have other numbers
        return None
    idle = {"idle", "iowait", "guest", "guest_nice"}  # guests count in `user` and `nice` already
    ran_s: float = sum(
        seconds for number in _ALLOWED for kind, seconds in times[number]._asdict().items() if kind not in idle
    )
    return round(1e9 * ran_s)


def others_ran_ns() -> int | None:
    """Return for how long others than this process ran on these processors so far, as `machine_ran_ns` does."""
    machine_ns, own = machine_ran_ns(), processor_time()
    return None if machine_ns is None or own is None else machine_ns - own.running_ns


def processors() -> int:
    """Return how many processors this process may run on."""
    return len(_ALLOWED)
