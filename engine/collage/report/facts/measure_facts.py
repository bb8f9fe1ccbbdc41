"""What `collage measure` found out of one kernel on several targets."""

from __future__ import annotations

import dataclasses

from collage.report.facts.record import SCHEMA_VERSION, HostFacts, ModelFacts


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredTarget:
    """One target's kernel.

    Attributes:
        target: Target name.
        cost_us: Median over rounds, at the machine's usual speed, in microseconds; None if it has none.
        ci95_us: The interval of that median; None if it has none.
        ratio: Time over that of the fastest, paired by round; None if it has none.
        ratio_ci95: Its interval; None if it has none.
        error: Largest error relative to the output's scale; None if it was not compared.
        variant: Which of the toolchain's variants; empty if it has one.
        reason: Why there is no time; empty if there is one.
    """

    target: str
    cost_us: float | None = None
    ci95_us: tuple[float, float] | None = None
    ratio: float | None = None
    ratio_ci95: tuple[float, float] | None = None
    error: float | None = None
    variant: str = ""
    reason: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MeasureReport:
    """A kernel on several targets, measured in turns.

    Attributes:
        model: The model.
        host: The machine.
        threads: CPU threads of every kernel.
        nodes: Names of the kernel's nodes, in execution order.
        operators: Operator type of each.
        rounds: How often each target was measured.
        targets: The targets, fastest first, those without a time last.
    """

    schema_version: int = SCHEMA_VERSION
    model: ModelFacts
    host: HostFacts
    threads: int
    nodes: tuple[str, ...]
    operators: tuple[str, ...]
    rounds: int
    targets: tuple[MeasuredTarget, ...]
