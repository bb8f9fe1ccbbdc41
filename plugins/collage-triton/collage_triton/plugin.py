"""The hooks of the toolchain `triton`. Importing this imports no Triton."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.util
from collections.abc import Iterator, Sequence

from collage_core.contract import (
    Artifact,
    BuildContext,
    Device,
    Host,
    Joins,
    Kernel,
    KernelFunction,
    RunContext,
    Target,
    Unsupported,
)
from collage_core.hookspecs import hookimpl
from collage_core.patterns import PatternTable
from collage_triton.driver import Driver
from collage_triton.kernel import load
from collage_triton.lower import lower
from collage_triton.patterns import takes
from collage_triton.rules import RULES

OLDEST = (3, 6)
"""First version with everything the plugin calls; the same as the pin in `pyproject.toml`."""

LEAST_CAPABILITY = (7, 5)
"""The assembler in Triton's wheel is CUDA 13's, which makes code for nothing older."""


def targets(version: str, devices: Sequence[Device]) -> list[Target]:
    """The targets of some devices: products of float32 exactly, and in tf32 where tensor cores have it (from 8.0).

    Args:
        version: Of Triton.
        devices: Those that are new enough.
    """
    found = []
    for device in devices:
        exact = Target(toolchain="triton", device=device.name, fingerprint=f"triton {version}", joins=Joins.NATIVE)
        found.append(exact)
        if _capability(device) >= (8, 0):
            found.append(dataclasses.replace(exact, options=(("precision", "tf32"),), exact=False))
    return found


def _capability(device: Device) -> tuple[int, ...]:
    return tuple(int(part) for part in device.compute_capability.split("."))


class TritonPlugin:
    """Hooks of the toolchain `triton`; keeps the process's one driver."""

    def __init__(self) -> None:
        self._driver: Driver | None = None

    def driver(self) -> Driver:
        """The CUDA driver, started when first needed.

        Raises:
            OSError: If there is none.
        """
        if self._driver is None:
            self._driver = Driver()
        return self._driver

    @hookimpl
    def collage_targets(self, host: Host) -> Sequence[Target] | Unsupported:
        """`triton` and `triton(precision=tf32)` on each device that is new enough."""
        if importlib.util.find_spec("triton") is None:
            return Unsupported("triton is not installed; pip install 'triton>=3.6'")
        version = importlib.metadata.version("triton")
        if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
            return Unsupported(f"triton {version} is too old; pip install 'triton>={OLDEST[0]}.{OLDEST[1]}'")
        devices = [device for device in host.devices if device.kind == "cuda"]
        if not devices:
            return Unsupported("no NVIDIA device, or no driver for it; nvidia-smi shows what the driver sees")
        fit = [device for device in devices if _capability(device) >= LEAST_CAPABILITY]
        if not fit:
            shown = ", ".join(f"{device.model} has {device.compute_capability}" for device in devices)
            return Unsupported(f"needs compute capability {LEAST_CAPABILITY[0]}.{LEAST_CAPABILITY[1]}; {shown}")
        if importlib.util.find_spec("cupy") is None:
            return Unsupported("CuPy, which keeps buffers on the device, is not installed; pip install cupy-cuda13x")
        return targets(version, fit)

    @hookimpl
    def collage_register_predicates(self, table: PatternTable, target: Target) -> None:
        """The operators there is a loop nest for; `Joins.NATIVE` makes groups of them."""
        for operator in RULES:
            table.predicate(operator, takes)

    @hookimpl
    def collage_lower(
        self, target: Target, function: KernelFunction, build: BuildContext
    ) -> Iterator[Artifact] | Unsupported:
        """Cubins, one pair per arrangement of loops."""
        from collage_triton.compile import compile_kernel

        return lower(target, function, build, importlib.metadata.version("triton"), compile_kernel)

    @hookimpl
    def collage_load(self, target: Target, artifact: Artifact, run: RunContext) -> Kernel | Unsupported:
        """The cubin, loaded by the driver."""
        return load(target, artifact, run, self.driver)


plugin = TritonPlugin()
