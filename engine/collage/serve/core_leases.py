"""Physical CPU cores to oneself: a lock on a file each, which the system gives back however a process ends.

Resources of a cluster are logical: two clusters, or two nodes on one machine, know nothing of each other. The files are
in one folder for all users of a machine.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from pathlib import Path
from typing import Self

_SIBLINGS = "/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"


def usable_cores() -> tuple[tuple[int, ...], ...]:
    """Return the logical CPUs of each physical core that this process may use."""
    usable = sorted(os.sched_getaffinity(0))
    cores: dict[str, list[int]] = {}
    for cpu in usable:
        try:
            siblings = Path(_SIBLINGS.format(cpu=cpu)).read_text(encoding="ascii").strip()
        except OSError:  # where the system does not say, each is a core
            siblings = str(cpu)
        cores.setdefault(siblings, []).append(cpu)
    return tuple(map(tuple, cores.values()))


class CoreLease:
    """Some cores, until it is closed or the process ends.

    Attributes:
        cpus: Their logical CPUs.
    """

    def __init__(self, locks: list[int], cpus: frozenset[int]) -> None:
        self._locks = locks
        self.cpus = cpus

    @classmethod
    def take(cls, count: int, folder: Path | None = None) -> Self | None:
        """Lease cores that nobody else has leased.

        Args:
            count: How many.
            folder: Where the locks are; one for all users of the machine if None.

        Returns:
            The lease; None if fewer are free.
        """
        folder = folder or Path(tempfile.gettempdir()) / "collage_cores"
        with contextlib.suppress(FileExistsError):
            folder.mkdir(parents=True)
            folder.chmod(0o1777)
        locks: list[int] = []
        cpus: set[int] = set()
        for core in usable_cores():
            if len(locks) == count:
                break
            lock = _locked(folder / f"core-{core[0]}")
            if lock is not None:
                locks.append(lock)
                cpus.update(core)
        if len(locks) == count:
            return cls(locks, frozenset(cpus))
        for lock in locks:
            os.close(lock)
        return None

    def pin(self) -> None:
        """Keep the calling thread, and the processes that it starts from now on, on these cores."""
        os.sched_setaffinity(0, self.cpus)

    def close(self) -> None:
        """Give them back; closing again does nothing."""
        while self._locks:
            os.close(self._locks.pop())


def _locked(path: Path) -> int | None:
    """Return the descriptor of a locked file; None if another has the lock."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
