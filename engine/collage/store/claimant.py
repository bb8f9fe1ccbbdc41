"""Which process began something, and whether it still runs: what a living one began is no sign of a death."""

from __future__ import annotations

import dataclasses
import functools
import os
import platform
import time

_SAME_START_S = 1.0
"""The system's clock moves, and with it what it says about the start of a process."""
_LONGEST_S = 3600.0
"""What was begun on another machine, or in another container, cannot be looked for. No attempt takes so long."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Claimant:
    """A process, told apart from a later one of the same number.

    Attributes:
        machine: Name of its machine or container.
        pid: Its number there.
        started: When it started, in seconds since 1970.

    Examples:
        >>> Claimant.this().lives(time.time())
        True
    """

    machine: str
    pid: int
    started: float

    @classmethod
    def this(cls) -> Claimant:
        """This process."""
        return _process(os.getpid())

    @property
    def is_this(self) -> bool:
        """Whether it is this process."""
        return self._is(Claimant.this())

    def lives(self, seen: float) -> bool:
        """Whether it still runs, or may do so.

        Args:
            seen: When it was last heard of, in seconds since 1970.
        """
        if self.machine != platform.node():
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

    return Claimant(machine=platform.node(), pid=pid, started=psutil.Process(pid).create_time())
