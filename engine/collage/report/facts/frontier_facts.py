"""Facts about the latency that each bound on the error buys."""

from __future__ import annotations

import dataclasses

from collage.report.facts.record import SCHEMA_VERSION, HostFacts, LatencyFacts, ModelFacts


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FrontierPoint:
    """One bound, and the plan that keeps to it.

    Attributes:
        max_error: The bound; None for the plan in the model's own types.
        error: Largest error of an output on inputs that the search did not see.
        package: Name of the package's file.
        targets: Names of the targets that the plan uses.
        kernels: Number of its kernels.
        int8: Number of its products in 8-bit integers.
        latency_ms: Its latency, in rounds with the packages of all other bounds; None if it does not run.
        ratio: Ratio of its latency to that of the plan in the model's own types; None if that is not known.
        ratio_ci95: 95 % interval of the ratio.
        failed: Why it does not run.
        is_best: Whether no other is both faster and nearer.
    """

    max_error: float | None
    error: float
    package: str
    targets: tuple[str, ...]
    kernels: int
    int8: int
    latency_ms: LatencyFacts | None = None
    ratio: float | None = None
    ratio_ci95: tuple[float, float] | None = None
    failed: str = ""
    is_best: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FrontierReport:
    """Plans of a model for several bounds.

    Attributes:
        model: The model.
        host: The machine.
        threads: CPU threads of each plan.
        points: The plans, by rising bound; that in the model's own types first.
        notes: What the user should know besides.
    """

    schema_version: int = SCHEMA_VERSION
    model: ModelFacts
    host: HostFacts
    threads: int
    points: tuple[FrontierPoint, ...]
    notes: tuple[str, ...] = ()


def with_best_marked(points: tuple[FrontierPoint, ...]) -> tuple[FrontierPoint, ...]:
    """Return the points, those marked of which no other is both at least as fast and at least as near."""

    def is_beaten(one: FrontierPoint, other: FrontierPoint) -> bool:
        assert one.latency_ms is not None
        assert other.latency_ms is not None
        mine, others = (one.latency_ms.p50, one.error), (other.latency_ms.p50, other.error)
        return all(b <= a for a, b in zip(mine, others, strict=True)) and others < mine

    ran = [point for point in points if point.latency_ms is not None]
    return tuple(
        dataclasses.replace(point, is_best=point in ran and not any(is_beaten(point, other) for other in ran))
        for point in points
    )
