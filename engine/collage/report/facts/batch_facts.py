"""What `collage optimize-all` made of models on machines."""

from __future__ import annotations

import dataclasses

from collage.report.facts.record import SCHEMA_VERSION


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BatchEntry:
    """One model on one kind of machine.

    Attributes:
        model: Path of the model, relative to the folder.
        machine: Fingerprint of the machine.
        package: Path of the package, relative to the folder of packages; empty if there is none.
        made: Whether this run made it; otherwise an earlier one did, of the same.
        best_single: The best single toolchain there; empty if none runs the whole model.
        best_single_ms: Its median latency, in milliseconds; None if there is none.
        latency_ms: Median latency of the plan in its race, in milliseconds; None if it did not race.
        ratio: Latency of the plan over that of the best single toolchain; None if there is none.
        toolchains: Toolchains of the plan.
        max_error: Largest error of its outputs in the verification there, relative to their scale.
        reason: Why there is no package; empty if there is one.
    """

    model: str
    machine: str
    package: str = ""
    made: bool = False
    best_single: str = ""
    best_single_ms: float | None = None
    latency_ms: float | None = None
    ratio: float | None = None
    toolchains: tuple[str, ...] = ()
    max_error: float | None = None
    reason: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """Models on machines.

    Attributes:
        runner: Who has the machines, as the user calls it.
        entries: By model, then by machine.
        notes: What else the user should know, a sentence each.
    """

    schema_version: int = SCHEMA_VERSION
    runner: str
    entries: tuple[BatchEntry, ...]
    notes: tuple[str, ...] = ()

    @property
    def failed(self) -> int:
        """How many have no package."""
        return sum(not entry.package for entry in self.entries)
