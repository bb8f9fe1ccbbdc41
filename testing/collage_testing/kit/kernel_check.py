"""Check one candidate from lowering to its results, including everything the contract forbids."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from collage.reference import Evaluation
from collage_core.contract import DeviceStream, Host, Target, Unsupported
from collage_core.errors import CollageError
from collage_core.fusion import SubGraph
from collage_core.ir.io.model_io import model_to_bytes
from collage_core.registry import Toolchain
from collage_testing.kit.artifact_check import ArtifactCheck
from collage_testing.kit.clauses import ALONE, ANSWERS, FUNCTION, PROCESS
from collage_testing.kit.external import outside
from collage_testing.kit.lowerings import Lowerings
from collage_testing.kit.operands import never_on_a_device, operands


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
        weights_outside: Whether functions have their weights in a file, as those of large models have.
        thorough: Whether the first right kernel is called often, and run in another process.
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
        *,
        weights_outside: bool = False,
        thorough: bool = False,
    ) -> None:
        self._weights_outside = weights_outside
        self._runs = runs
        self.toolchain = toolchain
        self.target = target
        self._folder = folder
        self._tolerance = tolerance
        self._lowerings = Lowerings(toolchain, target, folder, threads, max_variants, host)
        self._artifacts = ArtifactCheck(toolchain, target, folder, threads, host, device, thorough=thorough)

    def run(self, sub_graph: SubGraph, run: Evaluation) -> list[str] | Unsupported:
        """Check one candidate.

        Args:
            sub_graph: The candidate.
            run: A reference run of its model, with every value.

        Returns:
            The violations of the contract, one sentence each, empty if there are none; or the toolchain's refusal.
        """
        function, what = operands(sub_graph, run, correct=self.target.exact, tolerance=self._tolerance)
        if self._weights_outside:
            function = dataclasses.replace(function, model=outside(function.model, self._folder))
        if self.target.device != "cpu" and (reason := never_on_a_device(function)):
            return Unsupported(reason)
        before = model_to_bytes(function.model)
        try:
            variants = self._lowerings.lowered(function)
        except CollageError as error:
            return [str(error)]
        problems = []
        if model_to_bytes(function.model) != before:
            problems.append(FUNCTION.broken("collage_lower changes the function it is given"))
        if isinstance(variants, Unsupported):
            return problems or variants
        if not variants:
            problems.append(ANSWERS.broken("collage_lower yields no variant and gives no reason"))
        names = [artifact.variant for artifact in variants]
        if len(set(names)) < len(names):
            problems.append(ALONE.broken(f"variants have the same name: {names}"))
        elif len(names) > 1 and (missed := self._lowerings.missed(function, variants)):
            problems.append(ALONE.broken(missed))
        refusals: list[Unsupported] = []
        for artifact in variants:
            outcome = self._artifacts.run(function, artifact, what)
            if isinstance(outcome, Unsupported):
                refusals.append(outcome)
                continue
            problems.extend(f"variant {artifact.variant!r}: {each}" if len(names) > 1 else each for each in outcome)
        if refusals and len(refusals) == len(names) and self._runs and not problems:
            return [PROCESS.broken(f"collage_load refuses what collage_lower has just made: {refusals[0].reason}")]
        return problems
