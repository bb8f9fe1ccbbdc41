"""Physical CPU cores to oneself: a name per core that the system gives to one process, and takes back when it ends.

Resources of a cluster are logical: two clusters, or two nodes on one machine, know nothing of each other. The names are
those of Unix sockets in Linux's abstract namespace (unix(7)): no files, so no permissions, no links and nothing to
clean up, and the same for all users of a machine and its containers that share a network.
"""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path
from typing import Self

_SIBLINGS = "/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
_PREFIX = "collage/core/"


def usable_cores() -> dict[str, tuple[int, ...]]:
    """Return the logical CPUs of each physical core that this process may use, by a name that all processes have."""
    cores: dict[str, list[int]] = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        try:
            name = Path(_SIBLINGS.format(cpu=cpu)).read_text(encoding="ascii").strip()
        except OSError:  # where the system does not say, each is a core
            name = str(cpu)
        cores.setdefault(name, []).append(cpu)
    return {name: tuple(cpus) for name, cpus in cores.items()}


class CoreLease:
    """Some cores, until it is closed or the process ends.

    Attributes:
        cpus: Their logical CPUs.
    """

    def __init__(self, held: list[socket.socket], cpus: frozenset[int]) -> None:
        self._held = held
        self.cpus = cpus

    @classmethod
    def take(cls, count: int, prefix: str = _PREFIX) -> Self | None:
        """Take cores that nobody else has leased.

        Args:
            count: How many.
            prefix: What names begin with.

        Returns:
            The lease; None if fewer are free.
        """
        held: list[socket.socket] = []
        cpus: set[int] = set()
        for name, core in usable_cores().items():
            if len(held) == count:
                break
            mine = _held(f"{prefix}{name}")
            if mine is not None:
                held.append(mine)
                cpus.update(core)
        if len(held) == count:
            return cls(held, frozenset(cpus))
        for each in held:
            each.close()
        return None

    def pin(self) -> None:
        """Keep the calling thread, and the processes that it starts from now on, on these cores."""
        os.sched_setaffinity(0, self.cpus)

    def close(self) -> None:
        """Give them back; closing again does nothing."""
        while self._held:
            self._held.pop().close()


def _held(name: str) -> socket.socket | None:
    """Return what holds a name, which children do not inherit; None if another process has it."""
    mine = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        mine.bind(f"\0{name}")
    except OSError as error:
        mine.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise
    return mine
