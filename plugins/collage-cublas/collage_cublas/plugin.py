"""The hooks of the toolchain `cublas`. Importing this loads no library of NVIDIA's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

from collage_core.contract import (
    Artifact,
    BuildContext,
    Device,
    Host,
    Joins,
    Kernel,
    KernelFunction,
    Obstacle,
    RunContext,
    Target,
    Unsupported,
)
from collage_core.hookspecs import hookimpl
from collage_core.patterns import PatternTable
from collage_cublas.kernel import load
from collage_cublas.library import CublasError, Library
from collage_cublas.loading import OLDEST_DRIVERS, OLDEST_VERSION, majors_for, open_library, spelt
from collage_cublas.lower import lower
from collage_cublas.patterns import register

OLDEST_CAPABILITY = (7, 0)
"""Volta: below it nothing here was looked up, and CUDA 13 has dropped all that is older than 7.5."""

PRECISION_CAPABILITIES: Mapping[str, tuple[int, int]] = MappingProxyType(
    {"tf32": (8, 0), "fp16": (7, 0), "bf16": (8, 0)}
)
"""First compute capability whose tensor cores take a type: Volta's float16, from Ampere on all of them."""


def targets(devices: Sequence[Device], version: int) -> list[Target]:
    """Targets of devices that are new enough: the plain one of each first, then the precisions its tensor cores have.

    Args:
        devices: CUDA devices.
        version: Of cuBLASLt.
    """
    fingerprint = f"cublaslt {version}"
    found = [
        Target(toolchain="cublas", device=device.name, fingerprint=fingerprint, joins=Joins.NONE) for device in devices
    ]
    return found + [
        Target(
            toolchain="cublas",
            device=device.name,
            options=(("precision", precision),),
            fingerprint=fingerprint,
            joins=Joins.NONE,
            exact=False,
        )
        for device in devices
        for precision, first in PRECISION_CAPABILITIES.items()
        if capability(device) >= first
    ]


def capability(device: Device) -> tuple[int, int]:
    """Its compute capability as numbers, `(0, 0)` if it has none.

    Examples:
        >>> capability(Device(name="cuda:0", model="", compute_capability="9.0", driver="", memory_bytes=0))
        (9, 0)
    """
    major, _, minor = device.compute_capability.partition(".")
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else (0, 0)


class CublasPlugin:
    """Hooks of the toolchain `cublas`; keeps the process's one library, and a handle for each device.

    A handle is thread-safe, and holds neither stream nor workspace: each call is given its own.

    Args:
        open_library: Gives the library for the major versions of CUDA it may be of; called when it is first needed.
    """

    def __init__(self, open_library: Callable[[tuple[int, ...]], Library] = open_library) -> None:
        self._open = open_library
        self._library: Library | None = None
        self._handles: dict[str, int] = {}

    @hookimpl
    def collage_targets(self, host: Host) -> Sequence[Target] | Unsupported:
        """`cublas@cuda:N`, and with `precision=tf32`, `fp16` and `bf16`."""
        devices = [device for device in host.devices if device.kind == "cuda"]
        if not devices:
            return Unsupported(
                "this machine shows no NVIDIA GPU: it has none, no driver for it (is there libnvidia-ml.so.1, does "
                "nvidia-smi list one?), or CUDA_VISIBLE_DEVICES hides it",
                Obstacle.NO_DEVICE,
            )
        usable = [device for device in devices if capability(device) >= OLDEST_CAPABILITY]
        if not usable:
            shown = ", ".join(f"{each.name} is {each.model} of {each.compute_capability}" for each in devices)
            oldest = ".".join(map(str, OLDEST_CAPABILITY))
            return Unsupported(f"it needs compute capability {oldest} or newer; {shown}", Obstacle.COMPUTE_CAPABILITY)
        majors = majors_for(usable[0].driver)
        if not majors:
            reason = f"NVIDIA's driver {usable[0].driver} is too old; install {min(OLDEST_DRIVERS.values())} or newer"
            return Unsupported(reason, Obstacle.DRIVER_TOO_OLD)
        try:
            version = self._opened(majors).version()
        except OSError as error:
            wanted = " or ".join(f"'collage-cublas[cuda{major}]'" for major in majors)
            return Unsupported(f"cuBLASLt cannot be loaded ({error}); pip install {wanted}", Obstacle.NO_LIBRARY)
        if version < OLDEST_VERSION:
            reason = f"cuBLASLt {spelt(version)} is too old, it has to be {spelt(OLDEST_VERSION)}"
            return Unsupported(f"{reason}; pip install nvidia-cublas", Obstacle.LIBRARY_VERSION)
        return targets(usable, version)

    @hookimpl
    def collage_register_patterns(self, table: PatternTable, target: Target) -> None:
        """Products with what may follow them in one call."""
        register(table, target)

    @hookimpl
    def collage_lower(
        self, target: Target, function: KernelFunction, build: BuildContext
    ) -> Iterator[Artifact] | Unsupported:
        """Algorithms of the library's heuristic."""
        device = build.host.device(target.device)
        if device is None:
            return Unsupported(f"the machine has no {target.device}")
        try:
            library = self._opened(majors_for(device.driver))
            return lower(library, lambda: self._handle(target.device), target, device, function, build)
        except (OSError, CublasError) as error:
            return Unsupported(str(error))

    @hookimpl
    def collage_load(self, target: Target, artifact: Artifact, run: RunContext) -> Kernel | Unsupported:
        """The product with one algorithm."""
        try:
            return load(self._opened(), lambda: self._handle(run.device), artifact, run)
        except (OSError, CublasError) as error:
            return Unsupported(str(error))

    def _opened(self, majors: tuple[int, ...] = ()) -> Library:
        if self._library is None:
            this = next((device for device in Host.this().devices if device.kind == "cuda"), None)
            self._library = self._open(majors or (majors_for(this.driver) if this else tuple(OLDEST_DRIVERS)))
        return self._library

    def _handle(self, device: str) -> int:
        if device not in self._handles:
            assert self._library is not None
            self._handles[device] = self._library.create(device)
        return self._handles[device]


plugin = CublasPlugin()
