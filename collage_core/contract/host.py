"""The machine measurements hold for."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
import platform
from pathlib import Path

import psutil

from collage_core.contract.device import Device, nvidia_devices


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """Facts about a machine that plugins decide by and measurements are keyed by.

    Attributes:
        system: `platform.system()` and machine, e.g. `"Linux x86_64"`.
        cpu: Marketing name of the processor.
        physical_cores: Cores this process may use, hyper-threads counted once.
        cpu_flags: CPU feature flags as the kernel names them, lower case, e.g. `"avx512_bf16"`.
        memory_bytes: Physical memory.
        devices: What else kernels may run on.
    """

    system: str
    cpu: str
    physical_cores: int
    cpu_flags: frozenset[str]
    memory_bytes: int
    devices: tuple[Device, ...] = ()

    @property
    def fingerprint(self) -> str:
        """Short name that changes when measurements on the CPU taken here no longer hold."""
        digest = hashlib.sha256(" ".join(sorted(self.cpu_flags)).encode()).hexdigest()[:8]
        return f"{self.system}/{self.cpu}/{self.physical_cores}c/{digest}"

    def fingerprint_for(self, *devices: str) -> str:
        """The same for measurements on devices: another model of one, or another driver, and they no longer hold.

        Args:
            devices: As in `Target.device`, in any order.
        """
        others = sorted(set(devices) - {"cpu"})
        found = [(self.device(name), name) for name in others]
        return "/".join([self.fingerprint, *(device.fingerprint if device else name for device, name in found)])

    def device(self, name: str) -> Device | None:
        """The device a target names; None if this machine has none of that name."""
        return next((device for device in self.devices if device.name == name), None)

    @classmethod
    def this(cls) -> Host:
        """The machine this process runs on."""
        return _this_host()


@functools.cache
def _this_host() -> Host:
    name, flags = platform.processor() or platform.machine(), frozenset[str]()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        fields: dict[str, str] = {}
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            key, colon, value = line.partition(":")
            if colon:
                fields.setdefault(key.strip(), value.strip())
        name = fields.get("model name", name)
        flags = frozenset(fields.get("flags", fields.get("Features", "")).lower().split())
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    physical = psutil.cpu_count(logical=False) or usable
    return Host(
        system=f"{platform.system()} {platform.machine()}",
        cpu=name,
        physical_cores=max(1, min(usable, physical)),
        cpu_flags=flags,
        memory_bytes=psutil.virtual_memory().total,
        devices=nvidia_devices(),
    )
