"""The hooks of the toolchain `cudnn`. Importing this loads no library of NVIDIA's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from collage_core.contract import (
    Artifact,
    BuildContext,
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
from collage_core.ir.operators.narrowing import PRODUCTS
from collage_core.patterns import PatternTable
from collage_cuda import driver_problem, gpu_targets, usable_gpus
from collage_cudnn.kernel import load
from collage_cudnn.library import Library
from collage_cudnn.loading import FRONTEND, OLDEST_VERSION, frontend_version, oldest_driver, open_library
from collage_cudnn.lower import lower
from collage_cudnn.patterns import register

OLDEST_CAPABILITY = (7, 5)
"""Turing, the oldest capability for which cuDNN 9 for CUDA 13 has kernels."""


class CudnnPlugin:
    """Hooks of the toolchain `cudnn`; keeps the process's one library, and handles.

    A handle is bound to its stream, so there is one for each stream, and one without a stream for building on each
    device.

    Args:
        open_library: Returns the library; called at first use.
        frontend: Returns the installed version of the frontend, None if there is none.
        oldest: Returns the first branch of the driver that runs the library, None if it is unknown.
    """

    def __init__(
        self,
        open_library: Callable[[], Library] = open_library,
        frontend: Callable[[], str | None] = frontend_version,
        oldest: Callable[[], int | None] = oldest_driver,
    ) -> None:
        self._open = open_library
        self._frontend = frontend
        self._oldest = oldest
        self._library: Library | None = None
        self._handles: dict[tuple[str, int | None], int] = {}

    @hookimpl
    def collage_check_host(self, host: Host) -> Supported | Unsupported:
        """Check that there is a GPU, and a driver for a CUDA version that cuDNN exists for."""
        found = usable_gpus(host, least=OLDEST_CAPABILITY)
        return found if isinstance(found, Unsupported) else Supported()

    @hookimpl
    def collage_targets(self, host: Host) -> Sequence[Target] | Unsupported:
        """Return `cudnn@cuda:N`, and `cudnn(precision=tf32)@cuda:N`."""
        usable = usable_gpus(host, least=OLDEST_CAPABILITY)
        if isinstance(usable, Unsupported):
            return usable
        frontend = self._frontend()
        if frontend != FRONTEND:
            have = "is not installed" if frontend is None else f"is {frontend}, which is not the one this knows"
            obstacle = Obstacle.NO_LIBRARY if frontend is None else Obstacle.LIBRARY_VERSION
            return Unsupported(f"nvidia-cudnn-frontend {have}; pip install nvidia-cudnn-frontend=={FRONTEND}", obstacle)
        if (problem := driver_problem(usable[0], self._oldest())) is not None:
            return problem
        try:
            version = self._opened().version()
        except OSError as error:
            reason = f"cuDNN cannot be loaded ({error}); pip install 'collage-cudnn[cuda13]'"
            return Unsupported(reason, Obstacle.NO_LIBRARY)
        if version < OLDEST_VERSION:
            reason = f"cuDNN {version} is too old, it has to be {OLDEST_VERSION}; pip install nvidia-cudnn-cu13"
            return Unsupported(reason, Obstacle.LIBRARY_VERSION)
        return gpu_targets(
            usable,
            toolchain="cudnn",
            fingerprint=f"cudnn {version}, frontend {FRONTEND}",
            joins=Joins.ANY,
            precisions=["tf32"],
            rounds={"tf32": PRODUCTS},
        )

    @hookimpl
    def collage_register_patterns(self, table: PatternTable, target: Target) -> None:
        """Register convolutions, products, attention and norms, with the operators one graph can fuse after them."""
        register(table, target)

    @hookimpl
    def collage_lower(
        self, target: Target, function: KernelFunction, build: BuildContext
    ) -> Iterator[Artifact] | Unsupported:
        """Return artifacts for the plans of the library's heuristics."""
        device = build.host.device(target.device)
        if device is None:
            return Unsupported(f"the machine has no {target.device}")
        return lower(self._opened(), lambda: self._handle(target.device, None), target, device, function, build)

    @hookimpl
    def collage_load(self, target: Target, artifact: Artifact, run: RunContext) -> Kernel | Unsupported:
        """Return the steps as a kernel, with one plan for each graph."""
        if run.stream is None:
            return Unsupported("it enqueues on a stream, and none was given")
        try:
            library = self._opened()
        except OSError as error:
            return Unsupported(f"cuDNN cannot be loaded ({error})", Obstacle.NO_LIBRARY)
        version = artifact.metadata["version"]
        if version != library.version():
            reason = f"its plans are of cuDNN {version}, this is {library.version()}"
            return Unsupported(reason, Obstacle.LIBRARY_VERSION)
        return load(library, self._handle(run.device, run.stream), artifact, run)

    def _opened(self) -> Library:
        if self._library is None:
            self._library = self._open()
        return self._library

    def _handle(self, device: str, stream: int | None) -> int:
        known = self._handles.get((device, stream))
        if known is None:
            known = self._handles[device, stream] = self._opened().handle(device, stream)
        elif stream is not None:  # that one may be gone, and another have its address
            self._opened().put_on(known, stream)
        return known


plugin = CudnnPlugin()
