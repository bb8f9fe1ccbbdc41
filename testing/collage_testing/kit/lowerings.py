"""Lower candidates as core asks for it: all variants, and one by its name."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Sequence
from pathlib import Path

from collage_core.contract import Artifact, Host, KernelFunction, Target, Unsupported
from collage_core.errors import CollageError
from collage_core.registry import Toolchain
from collage_testing.kit.contexts import MemoryBlobs, build_context

_WORKSPACE_LIMIT_BYTES = 1 << 30
_DEADLINE_S = 120.0


class Lowerings:
    """Lowers functions for one target.

    Args:
        toolchain: The toolchain.
        target: One of its targets.
        folder: Parent of scratch directories.
        threads: CPU threads kernels may use.
        max_variants: Number of variants asked for.
        host: Machine for which kernels are built.
    """

    def __init__(
        self, toolchain: Toolchain, target: Target, folder: Path, threads: int, max_variants: int, host: Host
    ) -> None:
        self._toolchain = toolchain
        self._target = target
        self._folder = folder
        self._threads = threads
        self._max_variants = max_variants
        self._host = host
        self._blobs = MemoryBlobs()

    def lowered(self, function: KernelFunction, variant: str | None = None) -> tuple[Artifact, ...] | Unsupported:
        """Return the variants of a function, or why there is none.

        Args:
            function: The function.
            variant: Name of the one that is wanted; None for all.

        Raises:
            CollageError: If the toolchain fails.
        """
        build = build_context(
            Path(tempfile.mkdtemp(dir=self._folder)),
            threads=self._threads,
            effort=2,
            deadline_s=_DEADLINE_S,
            tuning_s=_DEADLINE_S / 2,
            max_variants=self._max_variants,
            variant=variant,
            host=self._host,
            workspace_limit_bytes=_WORKSPACE_LIMIT_BYTES,
            blobs=self._blobs,
            launch=self._target.launch,
        )
        answer = self._toolchain.lower(self._target, function, build)
        return answer if isinstance(answer, Unsupported) else tuple(itertools.islice(answer, self._max_variants))

    def missed(self, function: KernelFunction, variants: Sequence[Artifact]) -> str:
        """Request the last variant by name, as core does once it has chosen; return what is wrong, empty if nothing.

        Builds need not give the same bytes twice. But bytes that had another name belong to another variant.
        """
        variant = variants[-1].variant
        try:
            again = self.lowered(function, variant)
        except CollageError as error:
            return f"asked for variant {variant!r} alone, it fails: {error}"
        if isinstance(again, Unsupported):
            return f"asked for variant {variant!r} alone, it refuses: {again.reason}"
        names = [artifact.variant for artifact in again]
        if variant not in names:
            return f"asked for variant {variant!r} alone, it yields {names}"
        made = again[names.index(variant)]
        if _same_content(made, variants[-1]):
            return ""
        others = [each.variant for each in variants[:-1] if _same_content(each, made)]
        return f"asked for variant {variant!r} alone, it yields what it named {others[0]!r} before" if others else ""


def _same_content(one: Artifact, other: Artifact) -> bool:
    return (one.files, one.metadata) == (other.files, other.metadata)
