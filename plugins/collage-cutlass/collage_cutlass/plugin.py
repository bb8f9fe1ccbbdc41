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
    Supported,
    Target,
    Unsupported,
)
from collage_core.hookspecs import hookimpl
from collage_core.patterns import PatternTable
from collage_cuda import driver_problem, gpu_targets, usable_gpus
from collage_cutlass.architectures import ARCHITECTURES, architecture_of
from collage_cutlass.kernel import load
from collage_cutlass.library import Compiled, Library
from collage_cutlass.lower import LIBRARY, lower
from collage_cutlass.menu import Shortlist
from collage_cutlass.numbers import LOWER
from collage_cutlass.patterns import register
from collage_cutlass.shortlist import Heuristics
from collage_cutlass.toolkit import Compiler, MissingToolError, find_compiler, oldest_driver


def usable_devices(host: Host) -> tuple[Device, ...] | Unsupported:
    """Return the GPUs of supported architectures, or why there is none."""
    found = usable_gpus(host, least=min(each.oldest for each in ARCHITECTURES))
    if isinstance(found, Unsupported):
        return found
    usable = tuple(device for device in found if architecture_of(device) is not None)
    if usable:
        return usable
    shown = ", ".join(f"{each.name} is {each.model} of {each.compute_capability}" for each in found)
    known = ", ".join(each.specifier for each in ARCHITECTURES)
    return Unsupported(f"it compiles for compute capability {known}; {shown}", Obstacle.COMPUTE_CAPABILITY)


class CutlassPlugin:
    """Hooks of the toolchain `cutlass`; keeps the compiler, and every loaded library.

    Args:
        find_compiler: Returns the compiler; called at first use.
        open_library: Loads a library from its bytes, through a folder.
        shortlist: Ranks likely tiles.
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
    def collage_check_host(self, host: Host) -> Supported | Unsupported:
        """Check that there is a GPU of a supported architecture, and a driver for a CUDA version with an nvcc."""
        found = usable_devices(host)
        return found if isinstance(found, Unsupported) else Supported()

    @hookimpl
    def collage_targets(self, host: Host) -> Sequence[Target] | Unsupported:
        """Return `cutlass@cuda:N`, and its variants with `precision=tf32`, `fp16` and `bf16`."""
        usable = usable_devices(host)
        if isinstance(usable, Unsupported):
            return usable
        try:
            compiler = self._found()
        except MissingToolError as missing:
            return Unsupported(str(missing), Obstacle.LIBRARY_VERSION if missing.version else Obstacle.NO_LIBRARY)
        if (problem := driver_problem(usable[0], oldest_driver(compiler.major))) is not None:
            return problem
        return gpu_targets(
            usable, toolchain="cutlass", fingerprint=compiler.identity, joins=Joins.NONE, precisions=LOWER
        )

    @hookimpl
    def collage_register_patterns(self, table: PatternTable, target: Target) -> None:
        """Register products and convolutions, with the operators that one kernel can fuse after them."""
        register(table, target)

    @hookimpl
    def collage_lower(
        self, target: Target, function: KernelFunction, build: BuildContext
    ) -> Iterator[Artifact] | Unsupported:
        """Return a compiled kernel for each recommended tile."""
        device = build.host.device(target.device)
        if device is None:
            return Unsupported(f"the machine has no {target.device}")
        try:
            return lower(self._found(), self._shortlist, target, device, function, build)
        except MissingToolError as missing:
            return Unsupported(str(missing), Obstacle.NO_LIBRARY)

    @hookimpl
    def collage_load(self, target: Target, artifact: Artifact, run: RunContext) -> Kernel | Unsupported:
        """Load the kernel of an artifact; neither compiler nor headers are needed."""
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
