"""The machine that measurements are valid for."""

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
        cpu_flags: CPU feature flags as the operating system's kernel names them, lower case, e.g. `"avx512_bf16"`.
        memory_bytes: Physical memory.
        devices: Other devices that kernels may run on.
    """

    system: str
    cpu: str
    physical_cores: int
    cpu_flags: frozenset[str]
    memory_bytes: int
    devices: tuple[Device, ...] = ()

    @property
    def fingerprint(self) -> str:
        """Short name that changes when CPU measurements taken here are no longer valid."""
        digest = hashlib.sha256(" ".join(sorted(self.cpu_flags)).encode()).hexdigest()[:8]
        return f"{self.system}/{self.cpu}/{self.physical_cores}c/{digest}"

    def fingerprint_for(self, *devices: str) -> str:
        """Return the fingerprint for measurements on devices.

        It changes with the model or the driver of a device, which invalidates its measurements.

        Args:
            devices: Names as in `Target.device`, in any order.
        """
        others = sorted(set(devices) - {"cpu"})
        found = [(self.device(name), name) for name in others]
        return "/".join([self.fingerprint, *(device.fingerprint if device else name for device, name in found)])

    def device(self, name: str) -> Device | None:
        """Return the device of this name; None if the machine has none."""
        return next((device for device in self.devices if device.name == name), None)
