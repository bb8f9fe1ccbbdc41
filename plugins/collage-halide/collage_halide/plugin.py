"""The hooks of the toolchain `halide`. Importing this imports no Halide."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from collage_core.contract import (
    Artifact,
    BuildContext,
    Host,
    Joins,
    Kernel,
    KernelFunction,
    RunContext,
    Supported,
    Target,
    Unsupported,
)
from collage_core.fusion import FusionRule
from collage_core.hookspecs import hookimpl
from collage_core.patterns import PatternTable
from collage_halide.groups import rule_of
from collage_halide.kernel import load
from collage_halide.lower import lower
from collage_halide.machine import check_host, linker_name, problem, version
from collage_halide.patterns import register


class HalidePlugin:
    """Hooks of the toolchain `halide`."""

    @hookimpl
    def collage_check_host(self, host: Host) -> Supported | Unsupported:
        """Check that there are kernels for the machine's system and processor."""
        return check_host(host)

    @hookimpl
    def collage_targets(self, host: Host) -> Sequence[Target] | Unsupported:
        """Return `halide`, which joins what classic fusion joins."""
        if (missing := problem()) is not None:
            return missing
        fingerprint = f"halide {version()}, linked by {linker_name()}"
        return [Target(toolchain="halide", fingerprint=fingerprint, joins=Joins.NATIVE)]

    @hookimpl
    def collage_register_predicates(self, table: PatternTable, target: Target) -> None:
        """Register the operators that have a kernel."""
        register(table)

    @hookimpl
    def collage_fusion_spec(self, target: Target) -> FusionRule:
        """Return native fusion that joins reductions, too."""
        return rule_of(target)

    @hookimpl
    def collage_lower(
        self, target: Target, function: KernelFunction, build: BuildContext
    ) -> Iterator[Artifact] | Unsupported:
        """Compile the group, once per arrangement of loops."""
        return lower(function, build)

    @hookimpl
    def collage_load(self, target: Target, artifact: Artifact, run: RunContext) -> Kernel | Unsupported:
        """Load the library."""
        return load(artifact, run)


plugin = HalidePlugin()
