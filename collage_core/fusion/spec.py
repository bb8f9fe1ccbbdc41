"""A rule with its targets, and what it proposed."""

from __future__ import annotations

import dataclasses
from functools import cached_property

from collage_core.contract.target import Target
from collage_core.fusion.rule import FusionRule
from collage_core.fusion.sub_graph import SubGraph


@dataclasses.dataclass(frozen=True, kw_only=True)
class FusionSpec:
    """How candidates are found for one or several targets.

    Attributes:
        name: Shown to users; usually the target's name.
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
        sub_graph: What would be one kernel.
        spec: Who proposed it.
        target: Who would run it; may be left out if the spec has one target.
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
        """The target whose measurement is its cost; see `measured_as`."""
        return measured_as(self.target, self.sub_graph)


def measured_as(target: Target, sub_graph: SubGraph) -> Target:
    """The target as which a kernel is measured, and under whose name the outcome is recorded.

    Its own; or, where there is nothing in it that its own would round (`Target.rounds`), the one of full precision.

    Args:
        target: Who would run it.
        sub_graph: What would be the kernel.
    """
    if target.rounds is None or sub_graph.nodes & sub_graph.graph.float32_operators(target.rounds):
        return target
    return target.unrounded
