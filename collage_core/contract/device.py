"""Devices beside the CPU, as values."""

from __future__ import annotations

import dataclasses

HOST = "cpu"
"""The device that inputs start on and outputs end on."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device kernels may run on.

    Attributes:
        name: As targets name it: `"cuda:0"`. CUDA's devices have CUDA's own numbers, which depend on
            `CUDA_VISIBLE_DEVICES` and `CUDA_DEVICE_ORDER`; so every library means the same device by one.
        model: Marketing name, e.g. `"NVIDIA H200"`.
        compute_capability: What code is compiled for, e.g. `"9.0"`.
        driver: Version of its driver, e.g. `"580.65.06"`.
        memory_bytes: Its memory.

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
        """What its name begins with."""
        return self.name.partition(":")[0]

    @property
    def fingerprint(self) -> str:
        """What measurements on it hold for."""
        return f"{self.model}/{self.compute_capability}/{self.driver}"
