"""The machine measurements hold for."""

from __future__ import annotations

import dataclasses
import hashlib

from collage_core.contract.device import Device


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
