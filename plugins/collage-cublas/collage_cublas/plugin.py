"""The hooks of the toolchain `cublas`. Importing this loads no library of NVIDIA's."""

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
from collage_core.patterns import PatternTable
from collage_cublas.kernel import load
from collage_cublas.library import Library
from collage_cublas.loading import OLDEST_VERSION, open_library, spelt
from collage_cublas.lower import lower
from collage_cublas.patterns import register
from collage_cuda import TENSOR_CORES, cuda_majors, gpu_targets, usable_gpus

OLDEST_CAPABILITY = (7, 0)
"""Oldest supported compute capability, Volta.

Older devices were not checked, and CUDA 13 has dropped all below 7.5.
"""


class CublasPlugin:
    """Hooks of the toolchain `cublas`; keeps the process's one library, and a handle for each device.

    A handle is thread-safe and holds neither stream nor workspace: each call passes its own.

    Args:
        open_library: Returns the library for the accepted major versions of CUDA; called at first use.
    """

    def __init__(self, open_library: Callable[[tuple[int, ...]], Library] = open_library) -> None:
        self._open = open_library
        self._library: Library | None = None
        self._handles: dict[str, int] = {}

    @hookimpl
    def collage_check_host(self, host: Host) -> Supported | Unsupported:
        """Check that there is a GPU, and a driver for a CUDA version that cuBLASLt exists for."""
        found = usable_gpus(host, least=OLDEST_CAPABILITY)
        return found if isinstance(found, Unsupported) else Supported()

    @hookimpl
    def collage_targets(self, host: Host) -> Sequence[Target] | Unsupported:
        """Return `cublas@cuda:N`, and its variants with `precision=tf32`, `fp16` and `bf16`."""
        usable = usable_gpus(host, least=OLDEST_CAPABILITY)
        if isinstance(usable, Unsupported):
            return usable
        majors = cuda_majors(usable[0].driver)
        try:
            version = self._opened(majors).version()
        except OSError as error:
            wanted = " or ".join(f"'collage-cublas[cuda{major}]'" for major in majors)
            return Unsupported(f"cuBLASLt cannot be loaded ({error}); pip install {wanted}", Obstacle.NO_LIBRARY)
        if version < OLDEST_VERSION:
            reason = f"cuBLASLt {spelt(version)} is too old, it has to be {spelt(OLDEST_VERSION)}"
            return Unsupported(f"{reason}; pip install nvidia-cublas", Obstacle.LIBRARY_VERSION)
        return gpu_targets(
            usable,
            toolchain="cublas",
            fingerprint=f"cublaslt {version}",
            joins=Joins.NONE,
            precisions=TENSOR_CORES,
        )

    @hookimpl
    def collage_register_patterns(self, table: PatternTable, target: Target) -> None:
        """Register products with the operators that one call can fuse after them."""
        register(table, target)

    @hookimpl
    def collage_lower(
        self, target: Target, function: KernelFunction, build: BuildContext
    ) -> Iterator[Artifact] | Unsupported:
        """Return artifacts for the algorithms of the library's heuristic."""
        device = build.host.device(target.device)
        if device is None:
            return Unsupported(f"the machine has no {target.device}")
        library = self._opened(cuda_majors(device.driver))
        return lower(library, lambda: self._handle(target.device), target, device, function, build)

    @hookimpl
    def collage_load(self, target: Target, artifact: Artifact, run: RunContext) -> Kernel | Unsupported:
        """Return the product as a kernel with one algorithm."""
        device = run.host.device(run.device)
        try:
            library = self._opened(cuda_majors(device.driver if device else ""))
        except OSError as error:
            return Unsupported(f"cuBLASLt cannot be loaded ({error})", Obstacle.NO_LIBRARY)
        return load(library, lambda: self._handle(run.device), artifact, run)

    def _opened(self, majors: tuple[int, ...]) -> Library:
        if self._library is None:
            self._library = self._open(majors)
        return self._library

    def _handle(self, device: str) -> int:
        if device not in self._handles:
            assert self._library is not None
            self._handles[device] = self._library.create(device)
        return self._handles[device]


plugin = CublasPlugin()
