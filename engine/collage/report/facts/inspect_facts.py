"""Facts that `collage inspect` reports about a model without measuring anything."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from collage.report.facts.record import SCHEMA_VERSION, ModelFacts
from collage_core.candidates.refusals import Refusal
from collage_core.entry_points import PluginFailure


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TargetCoverage:
    """Part of a model that one target would take.

    Attributes:
        target: Target name.
        toolchain: Its toolchain.
        claimed_nodes: Number of nodes needing a kernel that it accepts.
        candidates: Number of candidate kernels its fusion rule proposes.
        distinct_candidates: Number of structurally distinct candidates, which would have to be measured.
        refusals: Refused nodes, with reasons.
        unusable: Why nothing is known about the target; empty if the other attributes hold.
    """

    target: str
    toolchain: str
    claimed_nodes: int = 0
    candidates: int = 0
    distinct_candidates: int = 0
    refusals: tuple[Refusal, ...] = ()
    unusable: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class InspectReport:
    """A prepared model and each target's coverage of it.

    Attributes:
        model: The model.
        kernel_nodes: Nodes that need a kernel; the others are views and the like, which cost nothing.
        operators: Count by operator type, with the domain unless it is ONNX's own.
        inputs: Each input as text: `"x: float32[1,3,224,224]"`.
        outputs: Each output as text.
        targets: In the order of their names.
        failures: Entry points that provide no toolchain.
        notes: Other information for the user, e.g. what preparing did.
    """

    schema_version: int = SCHEMA_VERSION
    model: ModelFacts
    kernel_nodes: int
    operators: Mapping[str, int]
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    targets: tuple[TargetCoverage, ...] = ()
    failures: tuple[PluginFailure, ...] = ()
    notes: tuple[str, ...] = ()
