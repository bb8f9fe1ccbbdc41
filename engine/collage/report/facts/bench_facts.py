"""Facts about contenders that `collage bench` timed."""

from __future__ import annotations

import dataclasses

from collage.report.facts.record import SCHEMA_VERSION, Comparison, HostFacts, ModelFacts


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ApparentLoss:
    """Slowdown of a contender relative to a plan the user gave.

    Attributes:
        contender: `"collage"` if it was timed, otherwise the fastest of the others.
        plan: Name of the user's plan.
        loss: Ratio of the contender's latency to the plan's, minus one; negative if the contender is faster.
        loss_ci95: 95 % interval of the loss.
    """

    contender: str
    plan: str
    loss: float
    loss_ci95: tuple[float, float]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BenchReport:
    """Results of `bench`.

    Attributes:
        model: The model all contenders run.
        host: The machine.
        threads: CPU threads of each contender.
        comparison: All contenders, timed interleaved, each in its own process.
        notes: Other information for the user, e.g. that inputs were random.
        apparent_losses: Loss against each plan the user gave.
    """

    schema_version: int = SCHEMA_VERSION
    model: ModelFacts
    host: HostFacts
    threads: int
    comparison: Comparison
    notes: tuple[str, ...] = ()
    apparent_losses: tuple[ApparentLoss, ...] = ()
