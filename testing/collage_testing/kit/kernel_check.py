"""Check one candidate from lowering to its results, including everything the contract forbids."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

from collage.reference import Evaluation
from collage_core.contract import (
    Artifact,
    DeviceStream,
    Host,
    KernelFunction,
    Target,
    Unsupported,
)
from collage_core.errors import CollageError
from collage_core.fusion import SubGraph
from collage_core.ir.io.model_io import model_to_bytes
from collage_core.registry import Toolchain
from collage_testing.kit.as_sent import as_sent
from collage_testing.kit.calls import called, profiled
from collage_testing.kit.contexts import MemoryBlobs, build_context, run_context
from collage_testing.kit.operands import Operands, foreign_constants, never_on_a_device, operands

_WORKSPACE_LIMIT_BYTES = 1 << 30
_DEADLINE_S = 120.0


class KernelCheck:
    """Tries candidates of one target.

    Args:
        toolchain: Toolchain under test.
        target: One of its targets.
        folder: Parent of scratch directories.
        threads: CPU threads kernels may use.
        tolerance: Largest error relative to a tensor's scale.
        max_variants: Number of variants tried per candidate.
        host: Machine for which kernels are built.
        device: Stream of the target's device, where kernels find their values and enqueue; None for the CPU.
        runs: Whether this machine can run the kernels.
    """

    def __init__(
        self,
        toolchain: Toolchain,
        target: Target,
        folder: Path,
        threads: int,
        tolerance: float,
        max_variants: int,
        host: Host,
        device: DeviceStream | None = None,
        runs: bool = True,
    ) -> None:
        self._host = host
        self._device = device
        self._runs = runs
        self.toolchain = toolchain
        self.target = target
        self._folder = folder
        self._threads = threads
        self._tolerance = tolerance
        self._max_variants = max_variants
        self._blobs = MemoryBlobs()

    def run(self, sub_graph: SubGraph, run: Evaluation) -> list[str] | Unsupported:
        """Check one candidate.

        Args:
            sub_graph: The candidate.
            run: A reference run of its model, with every value.

        Returns:
            The violations of the contract, one sentence each, empty if there are none; or the toolchain's refusal.
        """
        function, what = operands(sub_graph, run, correct=self.target.exact, tolerance=self._tolerance)
        if self.target.device != "cpu" and (reason := never_on_a_device(function)):
            return Unsupported(reason)
        before = model_to_bytes(function.model)
        try:
            variants = self._lowered(function)
        except CollageError as error:
            return [str(error)]
        problems = []
        if model_to_bytes(function.model) != before:
            problems.append("collage_lower changes the function it is given")
        if isinstance(variants, Unsupported):
            return problems or variants
        if not variants:
            problems.append("collage_lower yields no variant and gives no reason")
        names = [artifact.variant for artifact in variants]
        if len(set(names)) < len(names):
            problems.append(f"variants have the same name: {names}")
        elif len(names) > 1 and (missed := self._missed(function, names[-1])):
            problems.append(missed)
        refusals: list[Unsupported] = []
        for artifact in variants:
            outcome = self._variant(function, artifact, what)
            if isinstance(outcome, Unsupported):
                refusals.append(outcome)
                continue
            problems.extend(f"variant {artifact.variant!r}: {each}" if len(names) > 1 else each for each in outcome)
        if refusals and len(refusals) == len(names) and self._runs and not problems:
            return [f"collage_load refuses what collage_lower has just made: {refusals[0].reason}"]
        return problems

    def _lowered(self, function: KernelFunction, variant: str | None = None) -> tuple[Artifact, ...] | Unsupported:
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
            launch=self.target.launch,
        )
        answer = self.toolchain.lower(self.target, function, build)
        return answer if isinstance(answer, Unsupported) else tuple(itertools.islice(answer, self._max_variants))

    def _missed(self, function: KernelFunction, variant: str) -> str:
        """Request a variant by name, as core does once it has chosen; return what is wrong, empty if nothing."""
        try:
            again = self._lowered(function, variant)
        except CollageError as error:
            return f"asked for variant {variant!r} alone, it fails: {error}"
        if isinstance(again, Unsupported):
            return f"asked for variant {variant!r} alone, it refuses: {again.reason}"
        names = [artifact.variant for artifact in again]
        return "" if variant in names else f"asked for variant {variant!r} alone, it yields {names}"

    def _variant(self, function: KernelFunction, artifact: Artifact, what: Operands) -> list[str] | Unsupported:
        try:
            sent = as_sent(artifact)
        except (TypeError, ValueError, AttributeError) as error:
            return [f"its artifact is not JSON and bytes: {error}"]
        problems = [f"file {name!r} is in a directory" for name in sent.files if Path(name).name != name]
        if unknown := foreign_constants(sent, function):
            return [*problems, f"asks for constants that are not the function's: {', '.join(unknown)}"]
        device, scratch = self._device, Path(tempfile.mkdtemp(dir=self._folder))
        try:
            if device is not None:
                device.activate()
            run = run_context(
                sent, function, self.target, device, host=self._host, threads=self._threads, scratch=scratch
            )
            self.toolchain.check_data(self.target, sent)  # whatever it answers: that it fails is in the exception
            kernel = self.toolchain.load(self.target, sent, run)
            if isinstance(kernel, Unsupported):
                return kernel
            problems += called(kernel, function, sent, what, device)
            if problems or not self.toolchain.implements("collage_profile"):
                return problems
            return profiled(self.toolchain, self.target, function, sent, run, what.given, device)
        except Exception as error:
            return [*problems, f"{type(error).__name__}: {error}"]
