"""The hooks of the toolchain `cutlass`. Importing this loads no library of NVIDIA's and runs no compiler."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

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
from collage_cutlass.architectures import ARCHITECTURES, architecture_of
from collage_cutlass.kernel import load
from collage_cutlass.library import Compiled, Library
from collage_cutlass.lower import LIBRARY, lower
from collage_cutlass.menu import Shortlist
from collage_cutlass.numbers import LOWER
from collage_cutlass.patterns import register
from collage_cutlass.shortlist import Heuristics
from collage_cutlass.toolkit import OLDEST_DRIVERS, Compiler, MissingToolError, find_compiler

PRECISIONS = ("", *LOWER)


def targets(devices: Sequence[Device], identity: str) -> list[Target]:
    """The plain target of each device first, then the precisions, which all that is compiled for has.

    Args:
        devices: CUDA devices that something is compiled for.
        identity: Versions of compiler and headers.
    """
    return [
        Target(
            toolchain="cutlass",
            device=device.name,
            options=(("precision", precision),) if precision else (),
            fingerprint=identity,
            joins=Joins.NONE,
            exact=not precision,
        )
        for precision in PRECISIONS
        for device in devices
    ]


class CutlassPlugin:
    """Hooks of the toolchain `cutlass`; keeps the compiler, and each library that was loaded.

    Args:
        find_compiler: Gives the compiler; called when it is first needed.
        open_library: Loads a library from its bytes, by way of a folder.
        shortlist: Says which tiles are likely.
    """

    def __init__(
        self,
        find_compiler: Callable[[], Compiler] = find_compiler,
        open_library: Callable[[bytes, Path | None], Library] = Compiled,
        shortlist: Shortlist | None = None,
    ) -> None:
        self._find = find_compiler
        self._open = open_library
        self._shortlist = shortlist or Heuristics()
        self._compiler: Compiler | None = None
        self._libraries: dict[str, Library] = {}

    @hookimpl
    def collage_targets(self, host: Host) -> Sequence[Target] | Unsupported:
        """`cutlass@cuda:N`, and with `precision=tf32`, `fp16` and `bf16`."""
        devices = [device for device in host.devices if device.kind == "cuda"]
        if not devices:
            return Unsupported(
                "this machine shows no NVIDIA GPU: it has none, no driver for it (is there libnvidia-ml.so.1, does "
                "nvidia-smi list one?), or CUDA_VISIBLE_DEVICES hides it",
                Obstacle.NO_DEVICE,
            )
        usable = [device for device in devices if architecture_of(device) is not None]
        if not usable:
            shown = ", ".join(f"{each.name} is {each.model} of {each.compute_capability}" for each in devices)
            known = ", ".join(each.specifier for each in ARCHITECTURES)
            reason = f"it compiles for compute capability {known}; {shown}"
            return Unsupported(reason, Obstacle.COMPUTE_CAPABILITY)
        try:
            compiler = self._found()
        except MissingToolError as missing:
            return Unsupported(str(missing), Obstacle.LIBRARY_VERSION if missing.version else Obstacle.NO_LIBRARY)
        oldest = OLDEST_DRIVERS.get(compiler.major, max(OLDEST_DRIVERS.values()))
        branch = usable[0].driver.partition(".")[0]
        if not branch.isdigit() or int(branch) < oldest:
            reason = f"NVIDIA's driver {usable[0].driver} is too old for {compiler.identity}; install {oldest} or newer"
            return Unsupported(reason, Obstacle.DRIVER_TOO_OLD)
        return targets(usable, compiler.identity)

    @hookimpl
    def collage_register_patterns(self, table: PatternTable, target: Target) -> None:
        """Products and convolutions, with what may follow them in one kernel."""
        register(table, target)

    @hookimpl
    def collage_lower(
        self, target: Target, function: KernelFunction, build: BuildContext
    ) -> Iterator[Artifact] | Unsupported:
        """A kernel for each tile that is likely."""
        device = build.host.device(target.device)
        if device is None:
            return Unsupported(f"the machine has no {target.device}")
        try:
            return lower(self._found(), self._shortlist, target, device, function, build)
        except MissingToolError as missing:
            return Unsupported(str(missing), Obstacle.NO_LIBRARY)

    @hookimpl
    def collage_load(self, target: Target, artifact: Artifact, run: RunContext) -> Kernel | Unsupported:
        """The kernel of an artifact; neither compiler nor headers are needed."""
        data = artifact.files[LIBRARY]
        digest = hashlib.sha256(data).hexdigest()
        try:
            if digest not in self._libraries:
                self._libraries[digest] = self._open(data, run.scratch)
            return load(self._libraries[digest], artifact, run)
        except OSError as error:
            return Unsupported(f"its library cannot be loaded: {error}")

    def _found(self) -> Compiler:
        if self._compiler is None:
            self._compiler = self._find()
        return self._compiler


plugin = CutlassPlugin()
