"""Mock toolchains with kernels that run: on the CPU as the reference does, or on a fake device."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from collage.reference.plugin import ReferencePlugin
from collage_core.contract import (
    PRECISIONS,
    Artifact,
    Kernel,
    KernelFunction,
    KernelProfile,
    RunContext,
    Supported,
    Target,
    Unsupported,
    in_precision,
)
from collage_core.fusion import CandidateKernel, FusionSpec, OpCallByKindRule, SubGraph
from collage_core.hookspecs import hookimpl
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_testing.kit.fake_kernel import load_on_fake, lower_for_fake
from collage_testing.mock import MockToolchain


@dataclasses.dataclass(frozen=True, eq=False)
class ExecutingMock(MockToolchain):
    """A mock toolchain that also builds and runs what it takes.

    Its kernels evaluate ONNX's own operators; those of a target with an option `precision` round what they multiply.

    Attributes:
        capturable: Whether its kernels on a device may be captured.
    """

    capturable: bool = True

    @hookimpl
    def collage_lower(self, target: Target, function: KernelFunction) -> Iterator[Artifact] | Unsupported:
        """Lower like the reference, in the target's `precision`; for a fake device without weights."""
        precision = target.option("precision")
        if precision in PRECISIONS:
            narrowed = in_precision(function, PRECISIONS[precision])
            if isinstance(narrowed, Unsupported):
                return narrowed
            function = narrowed
        if target.device == "cpu":
            return ReferencePlugin().collage_lower(function)
        return lower_for_fake(function, capturable=self.capturable)

    @hookimpl
    def collage_load(self, target: Target, artifact: Artifact, run: RunContext) -> Kernel:
        """Load as the reference does, or on a fake device."""
        if target.device == "cpu":
            return ReferencePlugin().collage_load(artifact, run)
        return load_on_fake(artifact, run)

    @hookimpl
    def collage_check_data(self) -> Supported | Unsupported:
        """Return that artifacts are data: models, evaluated by the reference."""
        return Supported()

    @hookimpl
    def collage_profile(self, target: Target, function: KernelFunction) -> KernelProfile | Unsupported:
        """Return the cost of each node of the function."""
        graph = DataflowGraph(function.model)
        spec = FusionSpec(name=target.name, rule=OpCallByKindRule(), targets=(target,))
        return self.profile(CandidateKernel(SubGraph(graph, graph.all_mask), spec))
