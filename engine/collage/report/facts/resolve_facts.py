"""What `collage resolve` says of a plan for a machine that may be elsewhere."""

from __future__ import annotations

import dataclasses

from collage.report.facts.record import SCHEMA_VERSION, ModelFacts


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedKernel:
    """A kernel of the plan.

    Attributes:
        target: Target name.
        composite: Label of the pattern that proposed it; empty if none did.
        nodes: Names of its nodes in the prepared model, in execution order.
        operators: Operator type of each.
        cost_us: What it takes there, in microseconds: between its neighbours where it was timed so, or else alone.
    """

    target: str
    composite: str
    nodes: tuple[str, ...]
    operators: tuple[str, ...]
    cost_us: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ResolveReport:
    """A plan for a machine, found by what a store knows of it.

    Attributes:
        model: The model.
        host: Fingerprint of the machine.
        threads: CPU threads of every kernel.
        predicted_ms: What the plan takes there by its kernels, in milliseconds.
        measured_ms: Median of its race there, in milliseconds; None if it did not race there.
        decision: Why it is this one.
        kernels: Its kernels, in execution order.
        notes: What else the user should know, a sentence each.
    """

    schema_version: int = SCHEMA_VERSION
    model: ModelFacts
    host: str
    threads: int
    predicted_ms: float
    measured_ms: float | None
    decision: str
    kernels: tuple[ResolvedKernel, ...]
    notes: tuple[str, ...] = ()
