"""Devices beside the CPU, as values."""

from __future__ import annotations

import dataclasses

HOST = "cpu"
"""The device on which inputs start and outputs end."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device kernels may run on.

    Attributes:
        name: Name used by targets: `"cuda:0"`. CUDA devices keep CUDA's own numbers, which depend on
            `CUDA_VISIBLE_DEVICES` and `CUDA_DEVICE_ORDER`, so that a name means the same device in every library.
        model: Marketing name, e.g. `"NVIDIA H200"`.
        compute_capability: Compute capability to compile for, e.g. `"9.0"`.
        driver: Driver version, e.g. `"580.65.06"`.
        memory_bytes: Memory of the device.

    Examples:
        >>> Device(name="cuda:0", model="NVIDIA H200", compute_capability="9.0", driver="580.65", memory_bytes=1).kind
        'cuda'
    """

    name: str
    model: str
    compute_capability: str
    driver: str
    memory_bytes: int

    @property
    def kind(self) -> str:
        """The kind of device, e.g. `"cuda"`: the part of the name before the colon."""
        return self.name.partition(":")[0]

    @property
    def fingerprint(self) -> str:
        """Key of the measurements taken on this device."""
        return f"{self.model}/{self.compute_capability}/{self.driver}"
