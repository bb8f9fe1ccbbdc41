"""Outcomes of measuring to records of the tuning database and back."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping
from typing import Any

from collage_core.database import Purpose, RecordKey, TuningRecord
from collage_core.measure.outcomes import Failed, Measured, Outcome, Refused, Stage, Tolerance

DEADLINE_REASON = "worker deadline"
"""How the reason of a candidate begins whose worker was killed for taking too long."""


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """What a candidate is held to.

    Attributes:
        tolerance: How exact it must be.
        deadline_s: How long its worker may take.
    """

    tolerance: Tolerance
    deadline_s: float


def to_record(
    outcome: Outcome, key: RecordKey, purpose: Purpose, created: datetime.datetime, limits: Limits
) -> TuningRecord:
    """The record of an outcome.

    Args:
        outcome: What came of it.
        key: What was measured.
        purpose: Why.
        created: When, with offset from UTC.
        limits: What it was held to; kept, because a failure under them may be a success under others.
    """
    extra: dict[str, Any] = {"tolerance": limits.tolerance.relative, "deadline_s": limits.deadline_s}
    at = created.isoformat()
    match outcome:
        case Refused():
            return TuningRecord(
                key=key, outcome="refused", purpose=purpose, created=at, reason=outcome.reason, extra=extra
            )
        case Failed():
            return TuningRecord(
                key=key,
                outcome="failed",
                purpose=purpose,
                created=at,
                reason=outcome.reason,
                stage=outcome.stage.value,
                extra=extra,
            )
        case Measured():
            extra |= {
                "calls_per_sample": outcome.calls_per_sample,
                "build_s": outcome.build_s,
                "repeatable": outcome.repeatable,
                "discarded": list(outcome.discarded),
            }
            return TuningRecord(
                key=key,
                outcome="measured",
                purpose=purpose,
                created=at,
                samples_us=outcome.samples_us,
                warmup_runs=outcome.warmup_runs,
                error=outcome.error,
                variant=outcome.variant,
                extra=extra,
            )


def to_outcome(record: TuningRecord, limits: Limits) -> Outcome:
    """What a record says under the present limits."""
    if record.outcome == "refused":
        return Refused(reason=record.reason)
    if record.outcome == "failed":
        return Failed(stage=Stage(record.stage), reason=record.reason)
    if reason := objection(record, limits):
        return Failed(stage=Stage.CHECK, reason=reason)
    extra: Mapping[str, Any] = record.extra
    return Measured(
        samples_us=record.samples_us,
        warmup_runs=record.warmup_runs,
        calls_per_sample=int(extra.get("calls_per_sample", 1)),
        variant=record.variant,
        error=record.error or 0.0,
        build_s=float(extra.get("build_s", 0.0)),
        repeatable=bool(extra.get("repeatable", True)),
        discarded=tuple(extra.get("discarded", ())),
    )


def objection(record: TuningRecord, limits: Limits) -> str:
    """Why a candidate cannot be used, going by a record; empty if it can."""
    if record.outcome != "measured":
        return record.reason
    allowed = limits.tolerance.relative
    if record.error is not None and record.error > allowed:
        return f"wrong numbers: error {record.error:.3g} of the tensor's scale, allowed {allowed:.3g}"
    return ""


def superseded(record: TuningRecord, limits: Limits) -> bool:
    """Whether what failed then could pass now, because more time or a larger error is allowed."""
    if record.outcome != "failed":
        return False
    if record.stage == Stage.CHECK.value:
        return limits.tolerance.relative > float(record.extra.get("tolerance", 0.0))
    if record.reason.startswith(DEADLINE_REASON):
        return limits.deadline_s > float(record.extra.get("deadline_s", 0.0))
    return False
