"""Data caches of the processor, as Linux lists them."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Iterator
from pathlib import Path

_SYSTEM = Path("/sys/devices/system/cpu")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """The caches of one level that a number of threads use together.

    Attributes:
        level: 1 is the nearest to the core.
        size_bytes: Size of each.
        count: How many there are for the threads: as many as threads where each core has its own.
    """

    level: int
    size_bytes: int
    count: int

    @property
    def holds_bytes(self) -> int:
        """Bytes that all of them hold."""
        return self.size_bytes * self.count


TYPICAL = ((1, 32 << 10, True), (2, 1 << 20, True), (3, 16 << 20, False))
"""Level, size, and whether each core has its own, of processors of these years; for systems that do not tell."""


def caches(threads: int, *, cpus: Collection[int] | None = None, system: Path = _SYSTEM) -> tuple[Cache, ...]:
    """Return the data caches that threads use, the nearest first; typical ones where the system does not tell.

    Args:
        threads: Number of threads, each on a core of its own.
        cpus: Processors that may be used; those of this process if None.
        system: Folder that describes the processors.
    """
    if cpus is None:
        cpus = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    found: dict[int, dict[str, int]] = {}
    for cpu in cpus:
        for level, sharing, size_bytes in _of_cpu(system / f"cpu{cpu}" / "cache"):
            found.setdefault(level, {})[sharing] = size_bytes
    if not found:
        return tuple(Cache(level=level, size_bytes=size, count=threads if own else 1) for level, size, own in TYPICAL)
    return tuple(
        Cache(level=level, size_bytes=min(sizes.values()), count=min(threads, len(sizes)))
        for level, sizes in sorted(found.items())
    )


def _of_cpu(folder: Path) -> Iterator[tuple[int, str, int]]:
    """Yield level, sharing processors and size of each data cache of one processor."""
    for index in sorted(folder.glob("index*")):
        try:
            kind, level, size, sharing = (
                (index / name).read_text(encoding="ascii").strip()
                for name in ("type", "level", "size", "shared_cpu_list")
            )
            if kind in ("Data", "Unified"):
                yield int(level), sharing, int(size[:-1]) * _UNITS[size[-1]]
        except (OSError, ValueError, KeyError, IndexError):
            continue
