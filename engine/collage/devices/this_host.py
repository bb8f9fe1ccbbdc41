"""The machine this process runs on, as a value."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import psutil

from collage.devices.providers import Providers
from collage_core.contract import Host


def this_host(providers: Providers | None = None) -> Host:
    """Describe this machine and its devices.

    Args:
        providers: Who is asked for devices; those installed if None.
    """
    cpu, flags = _processor()
    usable = usable_cpus()
    physical = psutil.cpu_count(logical=False) or usable
    return Host(
        system=f"{platform.system()} {platform.machine()}",
        cpu=cpu,
        physical_cores=max(1, min(usable, physical)),
        cpu_flags=flags,
        memory_bytes=memory_bytes(),
        devices=(providers or Providers.discover()).devices(),
    )


def usable_cpus() -> int:
    """Return the number of logical CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_bytes() -> int:
    """Return this machine's physical memory."""
    return int(psutil.virtual_memory().total)


def own_bytes() -> int:
    """Return the resident memory of this process, that of mapped files left out where the system tells it apart."""
    memory = psutil.Process().memory_info()
    return int(memory.rss) - int(getattr(memory, "shared", 0))


def _processor() -> tuple[str, frozenset[str]]:
    """Return the marketing name and the feature flags of the processor, as Linux lists them."""
    cpuinfo = Path("/proc/cpuinfo")
    fields: dict[str, str] = {}
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            key, colon, value = line.partition(":")
            if colon:
                fields.setdefault(key.strip(), value.strip())
    flags = fields.get("flags", fields.get("Features", "")).lower().split()
    return fields.get("model name", platform.processor() or platform.machine()), frozenset(flags)
