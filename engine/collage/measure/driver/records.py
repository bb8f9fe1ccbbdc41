"""Outcomes of measuring to records of the tuning database and back."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping
from typing import Any

from collage.measure.wire.outcomes import Failed, Measured, Outcome, Refused, Stage, Tolerance
from collage.store import Purpose, RecordKey, TuningRecord
from collage_core.errors import DeviceMemoryError

DEADLINE_REASON = "worker deadline"
"""How the reason of a candidate begins whose worker was killed for taking too long."""
MEMORY_REASON = "worker memory"
"""How that of one begins whose worker was killed for taking too much memory."""
DEVICE_MEMORY = DeviceMemoryError.__name__
"""What stands in the reason of one for which a device had not the memory."""
DEADLY_REASONS = ("worker crash", MEMORY_REASON, "worker protocol")
"""How the reason of a candidate begins whose worker died of it, or had to be killed before its time."""


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """What a candidate is held to.

    Attributes:
        tolerance: How exact it must be.
        deadline_s: How long its worker may take.
        memory_bytes: About how much memory its worker may hold.
        deterministic: Whether variants that may give other bits each time are passed over.
    """

    tolerance: Tolerance
    deadline_s: float
    memory_bytes: int = 0
    deterministic: bool = False


def to_record(
    outcome: Outcome,
    key: RecordKey,
    purpose: Purpose,
    created: datetime.datetime,
    limits: Limits,
    seconds: float = 0.0,
) -> TuningRecord:
    """The record of an outcome.

    Args:
        outcome: What came of it.
        key: What was measured.
        purpose: Why.
        created: When, with offset from UTC.
        limits: What it was held to; kept, because a failure under them may be a success under others.
        seconds: How long it took to build, check and time it; kept, so that what another search would have spent on
            the same candidates can be told from the database (`benchmarks/lazy_search.py`).
    """
    extra: dict[str, Any] = {
        "tolerance": limits.tolerance.relative,
        "deadline_s": limits.deadline_s,
        "seconds": round(seconds, 4),
    }
    if isinstance(outcome, Failed) and outcome.reason.startswith(MEMORY_REASON):
        extra["memory_bytes"] = limits.memory_bytes
    if limits.deterministic:
        extra["only_deterministic"] = True
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
                "deterministic": outcome.deterministic,
                "discarded": list(outcome.discarded),
            }
            if outcome.launch:
                extra |= {
                    "launch": outcome.launch,
                    "launch_reason": outcome.launch_reason,
                    "weight_copies": outcome.weight_copies,
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
        deterministic=bool(extra.get("deterministic", False)),
        discarded=tuple(extra.get("discarded", ())),
        launch=str(extra.get("launch", "")),
        launch_reason=str(extra.get("launch_reason", "")),
        weight_copies=int(extra.get("weight_copies", 1)),
    )


_MUCH_MORE = 1.5
"""What is free differs from run to run; only this many times as much is worth another attempt."""


def is_deadly(outcome: object) -> bool:
    """Whether a worker died. One that served other candidates before may have died of those, so that says little."""
    return isinstance(outcome, Failed) and outcome.reason.startswith(DEADLY_REASONS)


def is_short_of_memory(reason: str) -> bool:
    """Whether a candidate failed for want of a device's memory, which others may have held just then."""
    return DEVICE_MEMORY in reason


def objection(record: TuningRecord, limits: Limits) -> str:
    """Why a candidate cannot be used, going by a record; empty if it can."""
    if record.outcome != "measured":
        return record.reason
    allowed = limits.tolerance.relative
    if record.error is not None and record.error > allowed:
        return f"wrong numbers: error {record.error:.3g} of the tensor's scale, allowed {allowed:.3g}"
    return ""


def superseded(record: TuningRecord, limits: Limits) -> bool:
    """Whether a record says nothing under the present limits.

    What failed then could pass now, because more time, more memory or a larger error is allowed. Or it is about other
    variants. Or it is not understood: a later version wrote it, or somebody else.
    """
    try:
        to_outcome(record, limits)
        return _of_other_variants(record, limits) or _may_pass_now(record, limits)
    except (TypeError, ValueError):
        return True


def _of_other_variants(record: TuningRecord, limits: Limits) -> bool:
    """Whether other variants are wanted now than were tried.

    The fastest of all variants is the fastest of the deterministic ones if it is one. But the fastest of those says
    nothing where all may win: some were passed over, or never made.
    """
    only_deterministic = bool(record.extra.get("only_deterministic", False))
    if limits.deterministic:
        return record.outcome == "measured" and not (only_deterministic or record.extra.get("deterministic", False))
    return only_deterministic and not record.reason.startswith((DEADLINE_REASON, *DEADLY_REASONS))


def _may_pass_now(record: TuningRecord, limits: Limits) -> bool:
    if record.outcome != "failed":
        return False
    if record.stage == Stage.CHECK.value:
        return limits.tolerance.relative > float(record.extra.get("tolerance", 0.0))
    if record.reason.startswith(DEADLINE_REASON):
        return limits.deadline_s > float(record.extra.get("deadline_s", 0.0))
    if record.reason.startswith(MEMORY_REASON):
        return limits.memory_bytes > _MUCH_MORE * int(record.extra.get("memory_bytes", 0))
    return False
