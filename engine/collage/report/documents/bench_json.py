"""The public JSON of `collage bench`."""

from __future__ import annotations

import dataclasses
from typing import Any

from collage.report.documents.codec import dumps, to_jsonable
from collage.report.facts.record import SCHEMA_VERSION, Comparison, ContenderFacts, HostFacts, ModelFacts


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


def bench_json(report: BenchReport) -> str:
    """Return the public form of a comparison, as JSON text."""
    document = latency_document(report.model, report.host, report.threads, report.comparison)
    if report.apparent_losses:
        document["apparent_losses"] = _rounded(to_jsonable(report.apparent_losses))
    return dumps(document)


def latency_document(model: ModelFacts, host: HostFacts, threads: int, comparison: Comparison) -> dict[str, Any]:
    """Return the document of `bench --json`, with which the document of `optimize --json` begins.

    Unknown figures are null: `best_single` when every single toolchain failed, and then also the speed-up.
    """
    known = bool(comparison.best_single) and comparison.speedup_vs_best_single > 0
    return {
        "schema_version": SCHEMA_VERSION,
        "model": {"name": model.name, "sha256": model.sha256, "nodes": model.nodes},
        "host": to_jsonable(host),
        "threads": threads,
        "contenders": [_contender(contender) for contender in comparison.contenders],
        "best_single": comparison.best_single or None,
        "speedup_vs_best_single": round(comparison.speedup_vs_best_single, 6) if known else None,
        "speedup_ci95": _rounded(to_jsonable(comparison.speedup_ci95)) if known else None,
        **({"streams": comparison.streams} if comparison.streams > 1 else {}),
    }


def _contender(contender: ContenderFacts) -> dict[str, Any]:
    document: dict[str, Any] = {"name": contender.name, "kind": contender.kind}
    if not contender.exact:
        document["exact"] = False
    # a single toolchain that rejects part of a model runs as several kernels, perhaps not all its own
    if contender.kind == "mixed" or contender.regions > 1:
        document["toolchains"] = sorted(contender.toolchains)
        document["regions"] = contender.regions
    if contender.latency_ms is None:
        document["failed"] = contender.failed or "no reason given"
    else:
        document["latency_ms"] = _rounded(to_jsonable(contender.latency_ms))
        if contender.as_called is not None:
            document["as_called"] = _rounded(to_jsonable(contender.as_called))
        if contender.per_s:
            document["runs_per_s"] = _rounded(contender.per_s)
    return document


def _rounded(value: Any) -> Any:
    """Return plain values, their numbers rounded to six decimals."""
    match value:
        case float():
            return round(value, 6)
        case list():
            return [_rounded(each) for each in value]
        case dict():
            return {key: _rounded(each) for key, each in value.items()}
    return value
