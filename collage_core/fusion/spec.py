"""Pair a rule with its targets, and candidates with their origin."""

from __future__ import annotations

import dataclasses
from functools import cached_property

from collage_core.contract.target import Target
from collage_core.fusion.rule import FusionRule
from collage_core.fusion.sub_graph import SubGraph


@dataclasses.dataclass(frozen=True, kw_only=True)
class FusionSpec:
    """A named rule for one or several targets.

    Attributes:
        name: Name shown to users; usually the target's name.
        rule: Finds the candidates.
        targets: Each candidate may run on each of them.
    """

    name: str
    rule: FusionRule
    targets: tuple[Target, ...]

    def __post_init__(self) -> None:
        if not self.targets:
            raise ValueError(f"fusion spec {self.name!r} has no target")


@dataclasses.dataclass(frozen=True)
class CandidateKernel:
    """A sub-graph with the spec that proposed it and one of the spec's targets.

    Attributes:
        sub_graph: Nodes of the kernel.
        spec: Spec that proposed it.
        target: Target that would run it; may be omitted if the spec has one target.
    """

    sub_graph: SubGraph
    spec: FusionSpec
    target: Target = None  # type: ignore[assignment]  # filled in below

    def __post_init__(self) -> None:
        if self.target is None:
            if len(self.spec.targets) != 1:
                raise ValueError(f"fusion spec {self.spec.name!r} has {len(self.spec.targets)} targets; choose one")
            object.__setattr__(self, "target", self.spec.targets[0])
        elif self.target not in self.spec.targets:
            raise ValueError(f"fusion spec {self.spec.name!r} does not have the target {self.target.name!r}")

    @cached_property
    def measured_as(self) -> Target:
        """The target whose measurement provides its cost; see `measured_as`."""
        return measured_as(self.target, self.sub_graph)


def measured_as(target: Target, sub_graph: SubGraph) -> Target:
    """Return the target that a kernel is measured as, under whose name the result is recorded.

    It is the kernel's own target or, if the kernel holds no operator that this target rounds (`Target.rounds`), the
    full-precision target.

    Args:
        target: Target that would run the kernel.
        sub_graph: The sub-graph of the kernel.
    """
    if target.rounds is None or sub_graph.nodes & sub_graph.graph.float32_operators(target.rounds):
        return target
    return target.unrounded
