"""Measure and limit a worker's memory, so that a leaking library does not exhaust the machine."""

from __future__ import annotations

import os
from pathlib import Path

import psutil

SHARE = 0.8
"""Share of the memory free at its start that a worker may hold."""
_VMSTAT = Path("/proc/vmstat")
_CGROUPS = Path("/sys/fs/cgroup")
_NO_LIMIT = 1 << 60
"""Threshold for unlimited control groups, which report `max` or, in version 1, a number as large as this."""


def limit_bytes() -> int:
    """Compute the memory limit of a process started now, in bytes."""
    return int(SHARE * min(psutil.virtual_memory().available, _free_in_group()))


def private_bytes(pid: int) -> int:
    """Return the memory that would be freed if a process ended, in bytes; 0 if it has ended.

    File mappings are not counted: they include the weights in the blob store, and the system can reclaim them.
    """
    try:
        resident, shared = map(int, Path(f"/proc/{pid}/statm").read_bytes().split()[1:3])
    except (OSError, ValueError):
        try:
            return int(psutil.Process(pid).memory_info().rss)
        except psutil.Error:
            return 0
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")


def family_bytes(pid: int) -> int:
    """Return the memory of a process and all its descendants, in bytes; pages shared since a fork count once.

    Available on Linux only, where the query is fast enough to run while other processes are timed.
    """
    family = [pid]
    for member in family:  # grows meanwhile
        family += _children(member)
    alone = private_bytes(pid)
    return alone if len(family) == 1 else max(alone, sum(_proportional_bytes(member) for member in family))


def kernel_kills() -> int | None:
    """Return how many processes Linux has killed since it started because memory ran out, of the machine or a group.

    None where that is not known: it is counted since Linux 4.13 (`oom_kill` in `/proc/vmstat`).
    """
    for line in _lines(_VMSTAT):
        name, _, value = line.partition(" ")
        if name == "oom_kill" and value.isdigit():
            return int(value)
    return None


def _children(pid: int) -> list[int]:
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return []
    return [int(child) for thread in threads for line in _lines(thread / "children") for child in line.split()]


def _proportional_bytes(pid: int) -> int:
    for line in _lines(Path(f"/proc/{pid}/smaps_rollup")):
        name, _, value = line.partition(":")
        if name == "Pss_Anon":
            return int(value.split()[0]) << 10
    return 0


def _free_in_group() -> int:
    """Return the memory that the control groups of this process leave free, as in a container, in bytes."""
    free = _NO_LIMIT
    for line in _lines(Path("/proc/self/cgroup")):
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root, limit, used = _CGROUPS, "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            root, limit, used = _CGROUPS / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        # inside a container the path may be one of the machine's: the group is then the root of what is seen
        group = root / path.lstrip("/")
        for folder in {group, *group.parents, root}:
            if folder.is_relative_to(root):
                most, now = _number(folder / limit), _number(folder / used)
                if most is not None and now is not None and most < _NO_LIMIT:
                    free = min(free, max(0, most - now + _reclaimable(folder)))
    return free


def _reclaimable(folder: Path) -> int:
    """Return the page cache that a group's usage includes and the system can reclaim, in bytes."""
    for line in _lines(folder / "memory.stat"):
        name, _, value = line.partition(" ")
        if name in ("inactive_file", "total_inactive_file") and value.isdigit():
            return int(value)
    return 0


def _number(path: Path) -> int | None:
    text = "".join(_lines(path))
    return int(text) if text.isdigit() else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return []
