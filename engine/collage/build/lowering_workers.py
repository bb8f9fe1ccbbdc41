"""Lower functions of a package in the workers of installed toolchains."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping

from collage.devices.this_host import this_host
from collage.measure.budget import Budget
from collage.measure.driver.client import PluginSource, Worker
from collage.measure.wire.artifact_codec import artifact_of
from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.function_codec import FunctionEncoder
from collage.measure.wire.messages import AskBuild
from collage.measure.wire.outcomes import BuildSettings, Built, Tolerance
from collage.temporary_folders import TemporaryFolder
from collage_core.contract import Artifact, KernelFunction, Target, Unsupported
from collage_core.registry import Toolchain

_TOTAL_S, _DEADLINE_S, _LEAST_S = 1800.0, 600.0, 10.0
"""Seconds for all kernels of a package and for one of them, and what one gets though the whole time is spent."""


class LoweringWorkers:
    """Workers of toolchains, each started when it is first asked; they stay until this is closed.

    Args:
        installed: The toolchains, by name.

    Attributes:
        installed: As given.
    """

    def __init__(self, installed: Mapping[str, Toolchain]) -> None:
        self.installed = installed
        self._budget = Budget.begin(_TOTAL_S)
        self._closing = contextlib.ExitStack()
        self._workers: dict[str, Worker] = {}
        self._targets: dict[str, tuple[Target, ...] | Unsupported] = {}

    def close(self) -> None:
        """End the workers."""
        self._closing.close()

    @functools.cached_property
    def _store(self) -> BlobStore:
        return BlobStore(self._closing.enter_context(TemporaryFolder()))

    def _worker(self, toolchain: str) -> Worker:
        if toolchain not in self._workers:
            worker = self._workers[toolchain] = Worker(PluginSource(toolchain=toolchain), self._store)
            self._closing.callback(worker.close)
        return self._workers[toolchain]

    def offered(self, toolchain: str) -> tuple[Target, ...] | Unsupported:
        """Return the targets of a toolchain on this machine, or why it has none; it is asked once."""
        if toolchain not in self.installed:
            return Unsupported("it is not installed")
        if toolchain not in self._targets:
            self._targets[toolchain] = self._worker(toolchain).targets(this_host())
        return self._targets[toolchain]

    def lowered(self, function: KernelFunction, target: Target, settings: BuildSettings) -> Artifact | Unsupported:
        """Return the artifact of a function for a target, or why there is none."""
        built = self._worker(target.toolchain).build(
            AskBuild(
                target=target,
                function=FunctionEncoder(self._store).encode(function),
                variant=None,
                inputs=(),
                expected=(),
                build=settings,
                tolerance=Tolerance(),
                deadline_s=self._budget.within(_DEADLINE_S, least_s=_LEAST_S),
            )
        )
        return artifact_of(built.artifact, self._store) if isinstance(built, Built) else Unsupported(built.reason)
