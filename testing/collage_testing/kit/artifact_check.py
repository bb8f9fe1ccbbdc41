"""Check one artifact: what it holds, that it loads, and what its kernel does."""

from __future__ import annotations

from pathlib import Path

from collage_core.contract import Artifact, DeviceStream, Host, KernelFunction, Target, Unsupported
from collage_core.error_text import own_frames
from collage_core.errors import KernelError
from collage_core.registry import Toolchain
from collage_testing.kit.another_process import can_be_sent, checked_elsewhere
from collage_testing.kit.as_sent import as_sent
from collage_testing.kit.calls import called, called_often, profiled
from collage_testing.kit.clauses import ARTIFACT, OUTPUTS, RAISING
from collage_testing.kit.loading import loaded
from collage_testing.kit.operands import Operands, foreign_constants


class ArtifactCheck:
    """Tries artifacts of one target.

    Args:
        toolchain: Toolchain under test.
        target: One of its targets.
        folder: Parent of scratch directories.
        threads: CPU threads kernels may use.
        host: Machine for which kernels are built.
        device: Stream of the target's device; None for the CPU.
        thorough: Whether the first right kernel is called often, and run in another process.
    """

    def __init__(
        self,
        toolchain: Toolchain,
        target: Target,
        folder: Path,
        threads: int,
        host: Host,
        device: DeviceStream | None,
        *,
        thorough: bool,
    ) -> None:
        self._toolchain = toolchain
        self._target = target
        self._folder = folder
        self._threads = threads
        self._host = host
        self._device = device
        self._ran_elsewhere = self._called_often = not thorough

    def run(self, function: KernelFunction, artifact: Artifact, what: Operands) -> list[str] | Unsupported:
        """Load an artifact and try its kernel.

        Args:
            function: What it was made from.
            artifact: The artifact.
            what: What the kernel reads, and should write.

        Returns:
            The violations of the contract, or why it cannot be loaded.
        """
        try:
            sent = as_sent(artifact)
        except (TypeError, ValueError, AttributeError) as error:
            return [ARTIFACT.broken(f"its artifact is not JSON and bytes: {error}")]
        problems = [
            ARTIFACT.broken(f"file {name!r} is in a directory") for name in sent.files if Path(name).name != name
        ]
        if unknown := foreign_constants(sent, function):
            return [*problems, ARTIFACT.broken(f"asks for constants that are not the function's: {', '.join(unknown)}")]
        device = self._device
        try:
            found = loaded(
                *(self._toolchain, self._target, sent, function, self._folder),
                threads=self._threads,
                host=self._host,
                device=device,
            )
            kernel, run = found.kernel, found.run
            if isinstance(kernel, Unsupported):
                return kernel
            problems += found.problems
            problems += called(kernel, function, sent, what, device)
            if not problems and not self._called_often:
                self._called_often = True
                problems += called_often(kernel, function, sent, what, self._threads, found.threads_before)
            if not problems and not self._ran_elsewhere and can_be_sent(self._toolchain, function, run):
                self._ran_elsewhere = True
                problems += checked_elsewhere(self._toolchain, self._target, function, sent, what, run, self._folder)
            if problems or not self._toolchain.implements("collage_profile"):
                return problems
            return profiled(self._toolchain, self._target, function, sent, run, what.given, device)
        except Exception as error:
            clause = OUTPUTS if isinstance(error, KernelError) else RAISING
            return [*problems, clause.broken(f"{type(error).__name__}: {error} [{own_frames(error)}]")]
