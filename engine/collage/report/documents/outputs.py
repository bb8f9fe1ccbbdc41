"""What `--json` writes: reports as they are, with the figures that follow from them.

One fact has one form everywhere: `optimize`, `explain` and `report` share the document of a plan, and what `bench` says
of contenders has the form that it has there. The schemas are in docs/generated/schemas.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence
from typing import Any

from collage.errors import RecordError
from collage.report.documents.codec import dumps, record_from_document, to_jsonable
from collage.report.facts.compare_facts import CompareReport
from collage.report.facts.record import SCHEMA_VERSION, Record

_DERIVED = "derived"
_REFUSAL_ORDER = operator.attrgetter("target", "stage", "reason", "nodes")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DerivedRegionFacts:
    """What follows from the facts about a region.

    Attributes:
        id: The region.
        share_of_time: Its share of the plan's time.
        share_of_peak: Share of the machine's peak it runs at, by estimate; None if not estimated.
        prediction_error: Time in place over the predicted cost, minus one; None if either is unknown.
    """

    id: str
    share_of_time: float | None
    share_of_peak: float | None
    prediction_error: float | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DerivedFacts:
    """What follows from the facts about a plan.

    Attributes:
        headroom: Share of the predicted time that another plan of the candidates could save at most; None if unknown.
        share_of_peak: Share of the machine's peak the plan runs at, by estimate; None if not estimated.
        prediction_error: Measured over predicted time, minus one, at the machine's usual speed; None if unknown.
        metric_drop: By how much less the plan reaches in the user's metric; None without one.
        regions: The same for each region, in execution order.
    """

    headroom: float | None
    share_of_peak: float | None
    prediction_error: float | None
    metric_drop: float | None
    regions: tuple[DerivedRegionFacts, ...]


def plans_json(records: Sequence[Record]) -> str:
    """Serialize the records of plans as JSON text.

    Args:
        records: One record, which is the document; or one for each set of input shapes, which are listed as `shapes`.
    """
    if len(records) == 1:
        return dumps(plan_document(records[0]))
    return dumps({"schema_version": SCHEMA_VERSION, "shapes": [plan_document(record) for record in records]})


def plan_document(record: Record) -> dict[str, Any]:
    """Return the document of a plan: its record, refusals in one order, and `derived`."""
    ordered = dataclasses.replace(record, refusals=tuple(sorted(record.refusals, key=_REFUSAL_ORDER)))
    return {**to_jsonable(ordered), _DERIVED: to_jsonable(derived(record))}


def records_of(document: Any, source: str) -> list[Record]:
    """Read the records of what `plans_json` wrote.

    Raises:
        RecordError: If it is something else.
    """
    plans = (
        document["shapes"] if isinstance(document, dict) and isinstance(document.get("shapes"), list) else [document]
    )
    if not plans:
        raise RecordError(source, "it holds no plan")
    kept = [
        {key: value for key, value in plan.items() if key != _DERIVED} if isinstance(plan, dict) else plan
        for plan in plans
    ]
    return [record_from_document(plan, source) for plan in kept]


def derived(record: Record) -> DerivedFacts:
    """Return what follows from a record."""
    whole_us = sum(region.time_us for region in record.regions)
    return DerivedFacts(
        headroom=record.headroom,
        share_of_peak=record.share_of_peak,
        prediction_error=record.prediction_error,
        metric_drop=None if record.metric is None else record.metric.drop,
        regions=tuple(
            DerivedRegionFacts(
                id=region.id,
                share_of_time=region.time_us / whole_us if whole_us else None,
                share_of_peak=region.share_of_peak,
                prediction_error=region.prediction_error,
            )
            for region in record.regions
        ),
    )


def compare_json(report: CompareReport) -> str:
    """Serialize a comparison as JSON text, with its verdict."""
    return dumps({**to_jsonable(report), "passed": report.passed, "max_error": to_jsonable(report.max_error)})
