"""A draft of a toolchain on cuBLASLt."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from collage_core.contract import (
    Artifact,
    BuildContext,
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
from tests.drafts.cublaslt.kernel import load
from tests.drafts.cublaslt.library import CublasError, CublasLt, Library
from tests.drafts.cublaslt.lower import lower
from tests.drafts.cublaslt.patterns import register


class CublasLtPlugin:
    """Hooks of the toolchain `cublaslt`.

    Args:
        open_library: Gives the library; called when it is first needed, in the worker.
    """

    def __init__(self, open_library: Callable[[], Library] = CublasLt) -> None:
        self._open = open_library
        self._library: Library | None = None
        self._handle: int | None = None

    @hookimpl
    def collage_targets(self, host: Host) -> Sequence[Target] | Unsupported:
        """One target per CUDA device."""
        try:
            library = self._opened()
        except OSError as error:
            return Unsupported(f"cuBLASLt cannot be loaded ({error}); pip install nvidia-cublas")
        devices = [device for device in host.devices if device.kind == "cuda"]
        if not devices:
            return Unsupported("this machine has no CUDA device that its driver shows")
        fingerprint = f"cublaslt {library.version()}"
        return [
            Target(toolchain="cublaslt", device=device.name, fingerprint=fingerprint, joins=Joins.NONE)
            for device in devices
        ]

    @hookimpl
    def collage_register_patterns(self, table: PatternTable, target: Target) -> None:
        """Products with what may follow them."""
        register(table)

    @hookimpl
    def collage_lower(
        self, target: Target, function: KernelFunction, build: BuildContext
    ) -> Iterator[Artifact] | Unsupported:
        """Algorithms of the heuristic."""
        try:
            return lower(self._opened(), self._created(), target, function, build)
        except CublasError as error:
            return Unsupported(str(error))

    @hookimpl
    def collage_load(self, artifact: Artifact, run: RunContext) -> Kernel | Unsupported:
        """The product with one algorithm."""
        try:
            return load(self._opened(), self._created(), artifact, run)
        except (OSError, CublasError) as error:
            return Unsupported(str(error))

    def _opened(self) -> Library:
        self._library = self._library or self._open()
        return self._library

    def _created(self) -> int:
        """The process's one handle; it is thread-safe, and streams and workspaces are given to each call."""
        if self._handle is None:
            self._handle = self._opened().create()
        return self._handle


plugin = CublasLtPlugin()
