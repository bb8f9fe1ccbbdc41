"""Device architectures that kernels are compiled for; add an entry for another one."""

from __future__ import annotations

import dataclasses

from collage_core.contract import Device
from collage_cuda import capability


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """A generation of devices.

    Attributes:
        name: Suffix of nvcc's `sm_` and `compute_` names.
        oldest: First compute capability that runs its code.
        below: First later compute capability that does not.
        shared_bytes: Shared memory one block may have (CUDA C++ programming guide, "Compute Capabilities").
        processors: Multiprocessors of its usual device, for guesses about which tile is best.
        heuristic: Name of that device in nvidia-matmul-heuristics.
        wgmma: Whether it has the instructions on which CUTLASS 3.x for Hopper is built.
    """

    name: str
    oldest: tuple[int, int]
    below: tuple[int, int]
    shared_bytes: int
    processors: int
    heuristic: str
    wgmma: bool = False

    @property
    def flags(self) -> tuple[str, ...]:
        """Flags of nvcc for the architecture."""
        return ("-gencode", f"arch=compute_{self.name},code=sm_{self.name}")

    @property
    def specifier(self) -> str:
        """Compute capabilities that run its code, as an artifact's requirement."""
        oldest, below = (".".join(map(str, each)) for each in (self.oldest, self.below))
        return f">={oldest},<{below}"


ARCHITECTURES = (
    Architecture(
        name="90a",
        oldest=(9, 0),
        below=(9, 1),
        shared_bytes=227 << 10,
        processors=132,
        heuristic="H100_SXM",
        wgmma=True,
    ),
    Architecture(name="86", oldest=(8, 6), below=(9, 0), shared_bytes=99 << 10, processors=84, heuristic="RTX_A6000"),
    Architecture(
        name="80", oldest=(8, 0), below=(8, 6), shared_bytes=163 << 10, processors=108, heuristic="A100_SXM_80GB"
    ),
)
"""The newest first. Code compiled for `90a` may use all features of Hopper, and runs on nothing else."""


def architecture_of(device: Device) -> Architecture | None:
    """Return the architecture to compile for on a device; None if the device is not supported."""
    has = capability(device)
    return next((each for each in ARCHITECTURES if each.oldest <= has < each.below), None)
