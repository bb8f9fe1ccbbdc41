"""Identify the process that began an attempt, and whether it still runs; only a dead one indicates a crash."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import platform
import time
from pathlib import Path

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_SAME_START_S = 1.0
"""Largest difference in seconds between start times of the same process: adjusting the system clock shifts them."""
_LONGEST_S = 3600.0
"""Seconds after which an attempt begun on another machine or in another container counts as ended.

Such a process cannot be looked up, and no attempt takes so long.
"""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Claimant:
    """A process, distinguished from a later one with the same process identifier.

    Attributes:
        machine: Name of its machine or container, with what tells it from others of that name.
        pid: Its process identifier there.
        started: Start time, in seconds since 1970.

    Examples:
        >>> Claimant.this().lives(time.time())
        True
    """

    machine: str
    pid: int
    started: float

    @classmethod
    def this(cls) -> Claimant:
        """Return the claimant for this process."""
        return _process(os.getpid())

    @property
    def is_this(self) -> bool:
        """Whether it is this process."""
        return self._is(Claimant.this())

    def lives(self, seen: float) -> bool:
        """Return whether the process still runs, or may still run.

        Args:
            seen: Time of its last sign of life, in seconds since 1970.
        """
        if self.machine != _machine():
            return abs(time.time() - seen) < _LONGEST_S
        import psutil

        try:
            process = psutil.Process(self.pid)
            running = process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
            return running and abs(process.create_time() - self.started) < _SAME_START_S
        except psutil.NoSuchProcess:
            return False
        except psutil.Error:
            return True

    def _is(self, other: Claimant) -> bool:
        same = (self.machine, self.pid) == (other.machine, other.pid)
        return same and abs(self.started - other.started) < _SAME_START_S


@functools.lru_cache(maxsize=1)
def _process(pid: int) -> Claimant:
    import psutil

    return Claimant(machine=_machine(), pid=pid, started=psutil.Process(pid).create_time())


@functools.cache
def _machine() -> str:
    """Return a name that no other machine or container has: images often share that of the host."""
    parts = [platform.node()]
    with contextlib.suppress(OSError):
        parts.append(_BOOT.read_text(encoding="ascii").strip())
    with contextlib.suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(parts)
