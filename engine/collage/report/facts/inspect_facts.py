"""What `collage inspect` says about a model without measuring anything."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from collage.report.facts.record import SCHEMA_VERSION, ModelFacts
from collage_core.candidates.refusals import Refusal
from collage_core.entry_points import PluginFailure


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TargetCoverage:
    """What one target would take of a model.

    Attributes:
        target: Target name.
        toolchain: Its toolchain.
        claimed_nodes: Nodes needing a kernel that it accepts.
        candidates: Candidate kernels its fusion rule proposes.
        distinct_candidates: Of these, structurally distinct ones: what would have to be measured.
        refusals: What it does not take, and why.
        unusable: Why nothing at all can be said; empty if the rest holds.
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
    """A prepared model and what each target would take of it.

    Attributes:
        model: The model.
        kernel_nodes: Nodes that need a kernel; the others are views and the like, which cost nothing.
        operators: Count by operator type, with the domain unless it is ONNX's own.
        inputs: Each input as text: `"x: float32[1,3,224,224]"`.
        outputs: Each output likewise.
        targets: In the order of their names.
        failures: Entry points that give no toolchain.
        notes: Anything else a user should know, e.g. what preparing did.
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
