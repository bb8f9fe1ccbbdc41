"""The public JSON of `collage optimize`."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from collage.report.documents.bench_json import latency_document
from collage.report.documents.codec import dumps, to_jsonable
from collage.report.facts.record import SCHEMA_VERSION, ContenderFacts, CopyFacts, Record, RegionFacts, SearchFacts
from collage_core.candidates.refusals import Refusal

PHASES = ("prepare", "candidates", "measure", "search", "refine", "total")

_REFUSAL_ORDER = operator.attrgetter("target", "stage", "reason", "nodes")


def optimize_json(record: Record) -> str:
    """Return the public form of a record, as JSON text."""
    return dumps(_document(record))


def shapes_json(records: Sequence[Record]) -> str:
    """Return the public form of records of several input shapes, as JSON text: `shapes` has one for each."""
    shapes = [{"input_shapes": to_jsonable(record.model.input_shapes), **_document(record)} for record in records]
    return dumps({"schema_version": SCHEMA_VERSION, "shapes": shapes})


def _document(record: Record) -> dict[str, Any]:
    refusals = sorted((*record.refusals, *_unusable(record)), key=_REFUSAL_ORDER)
    return {
        **latency_document(record.model, record.host, record.threads, record.comparison),
        "search": _search(record.search),
        "predicted_ms": round(record.predicted_ms, 6),
        "measured_ms": round(record.measured_ms, 6),
        "prediction": _prediction(record),
        "headroom": _headroom(record),
        "max_error": to_jsonable(record.max_error),
        "metric": None if record.metric is None else {**to_jsonable(record.metric), "drop": record.metric.drop},
        "nan": record.nan,
        "deterministic": record.deterministic,
        "ranges": record.ranges,
        "regions": [_region(region) for region in record.regions],
        "device_copies": [_copy(copy) for copy in record.device_copies],
        "devices": to_jsonable(record.devices),
        "device_work": to_jsonable(record.device_work),
        "refusals": to_jsonable(refusals),
    }


def _search(search: SearchFacts) -> dict[str, Any]:
    others = sorted(set(search.seconds) - set(PHASES))
    return {
        "method": search.method,
        "exact": search.exact,
        "gap_us": to_jsonable(float(search.gap_us)),
        "bound_us": to_jsonable(float(search.bound_us)),
        "candidates": search.candidates,
        "distinct_candidates": search.distinct_candidates,
        "unmeasured": search.unmeasured,
        "measured": search.measured,
        "cache_hits": search.cache_hits,
        "seconds": {phase: round(search.seconds.get(phase, 0.0), 3) for phase in (*PHASES, *others)},
        "compatible_sets": to_jsonable(search.compatible_sets),
    }


def _predicted(contender: ContenderFacts) -> dict[str, Any]:
    return {
        "name": contender.name,
        "kernels": contender.regions,
        "alone_ms": round(contender.alone_ms, 6),
        "predicted_ms": round(contender.predicted_ms, 6),
        "usual_ms": round(contender.usual_ms, 6),
    }


def _prediction(record: Record) -> dict[str, Any]:
    """Return how far predictions were off; null where something was not measured."""
    return {
        "error": _rounded(record.prediction_error),
        "plans": [_predicted(each) for each in record.comparison.contenders],
        "regions": [
            {
                "id": region.id,
                "predicted_us": round(float(region.cost_us), 3),
                "measured_us": round(float(region.measured_us), 3) if region.measured_us else None,
            }
            for region in record.regions
        ],
    }


def _headroom(record: Record) -> dict[str, Any]:
    """Return how much better a plan could be: by the candidates, and by the machine, which is an estimate."""
    regions = [
        {"id": region.id, **to_jsonable(region.limit), "share_of_peak": _rounded(region.share_of_peak)}
        for region in record.regions
        if region.limit is not None
    ]
    return {
        "candidates": _rounded(record.headroom),
        "share_of_peak": _rounded(record.share_of_peak),
        "machine": to_jsonable(record.machine),
        "limit": to_jsonable(record.limit),
        "regions": regions,
    }


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 6)


def _region(region: RegionFacts) -> dict[str, Any]:
    return {
        "id": region.id,
        "toolchain": region.toolchain,
        "target": region.target,
        "composite": region.composite,
        "nodes": list(region.nodes),
        "cost_us": round(float(region.cost_us), 3),
        "cost_ci95_us": None if region.cost_ci95_us is None else [round(each, 3) for each in region.cost_ci95_us],
        "precision": to_jsonable(region.precision),
    }


def _copy(copy: CopyFacts) -> dict[str, Any]:
    return {**to_jsonable(copy), "cost_us": to_jsonable(round(float(copy.cost_us), 3))}


def _unusable(record: Record) -> list[Refusal]:
    """Return a refusal for each unusable toolchain; it refuses everything, so no nodes are named."""
    return [
        Refusal(target=toolchain.name, stage="toolchain", nodes=(), reason=toolchain.unusable)
        for toolchain in record.toolchains
        if toolchain.unusable
    ]
