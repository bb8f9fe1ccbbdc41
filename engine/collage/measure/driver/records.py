"""Convert measurement outcomes to records of the tuning database and back."""

from __future__ import annotations

import dataclasses
import datetime
import errno
import math
import os
from collections.abc import Iterable, Mapping
from typing import Any

from collage.measure.wire.outcomes import Failed, Measured, Outcome, Refused, Stage, Tolerance
from collage.measure.worker.judge_version import JUDGE
from collage.store import MAX_ATTEMPTS, Purpose, RecordKey, TuningRecord, applicable
from collage_core.errors import DeviceMemoryError

DEADLINE_REASON = "worker deadline"
"""Prefix of the reason when the worker was killed for exceeding the deadline."""
MEMORY_REASON = "worker memory"
"""Prefix of the reason when the worker was killed for exceeding its memory limit."""
DEVICE_MEMORY = DeviceMemoryError.__name__
"""Text in the reason when a device ran out of memory."""
DEADLY_REASONS = ("worker crash", MEMORY_REASON, "worker protocol")
"""Prefixes of the reason when the candidate's worker died, or was killed before its deadline."""


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """Requirements on a candidate.

    Attributes:
        tolerance: Required accuracy.
        deadline_s: Seconds its worker may take.
        memory_bytes: Approximate memory its worker may hold.
        deterministic: Whether variants that may give different bits from run to run are skipped.
        effort: How much a toolchain does to make them fast.
        variants: How many of them are tried.
    """

    tolerance: Tolerance
    deadline_s: float
    memory_bytes: int = 0
    deterministic: bool = False
    effort: int = 0
    variants: int = 1


def to_record(
    outcome: Outcome,
    key: RecordKey,
    purpose: Purpose,
    created: datetime.datetime,
    limits: Limits,
    seconds: float = 0.0,
) -> TuningRecord:
    """Create the tuning record of an outcome.

    Args:
        outcome: Outcome of the measurement.
        key: Identifies what was measured.
        purpose: Why it was measured.
        created: Time of the measurement, with offset from UTC.
        limits: Limits it was measured under; stored, because a failure under them may be a success under others.
        seconds: Time to build, check and time it; stored, so that the cost of another search over the same
            candidates can be computed from the database.
    """
    extra: dict[str, Any] = {
        "tolerance": limits.tolerance.relative,
        "deadline_s": limits.deadline_s,
        "seconds": round(seconds, 4),
        "judge": JUDGE,
        "effort": limits.effort,
        "variants": limits.variants,
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
                "timed_s": round(outcome.timed_s, 4),
                "waited_s": round(outcome.waited_s, 4),
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
                blocks=outcome.blocks,
                warmup_runs=outcome.warmup_runs,
                error=outcome.error,
                variant=outcome.variant,
                extra=extra,
            )


def to_outcome(record: TuningRecord, limits: Limits) -> Outcome:
    """Convert a record to its outcome under the present limits."""
    if record.outcome == "refused":
        return Refused(reason=record.reason)
    if record.outcome == "failed":
        return Failed(stage=Stage(record.stage), reason=record.reason)
    if reason := objection(record, limits):
        return Failed(stage=Stage.CHECK, reason=reason)
    extra: Mapping[str, Any] = record.extra
    return Measured(
        samples_us=record.samples_us,
        blocks=record.blocks,
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
"""Factor by which the memory limit must have grown before another attempt; free memory varies from run to run."""


def is_deadly(outcome: object) -> bool:
    """Return whether a worker died; if it served other candidates before, these may be the cause."""
    return isinstance(outcome, Failed) and outcome.reason.startswith(DEADLY_REASONS)


def is_short_of_memory(reason: str) -> bool:
    """Return whether a candidate failed for lack of device memory, which other processes may have held."""
    return DEVICE_MEMORY in reason


def is_short_of_disk(reason: str) -> bool:
    """Return whether a candidate failed because a disk was full, which says nothing about it."""
    return any(os.strerror(number) in reason for number in (errno.ENOSPC, errno.EDQUOT))


def objection(record: TuningRecord, limits: Limits) -> str:
    """Return why a record makes a candidate unusable; empty if it is usable.

    What was measured was judged, so its error counts only if less is allowed now than then.
    """
    if record.outcome != "measured":
        return record.reason
    allowed = limits.tolerance.relative
    is_judged = allowed >= float(record.extra.get("tolerance", math.inf))
    if not is_judged and record.error is not None and record.error > allowed:
        return f"wrong numbers: error {record.error:.3g} of the tensor's scale, allowed {allowed:.3g}"
    return ""


def usable_records(
    records: Iterable[TuningRecord], plugin: str, limits: Limits, *, retry_failed: bool = False
) -> list[TuningRecord]:
    """Return the records that say something of a candidate under the present limits, in their order.

    Args:
        records: All that are known of it, whichever version of the plugin made them, in the order they were taken.
        plugin: Present version of the plugin.
        limits: Requirements on the candidate.
        retry_failed: Whether failures do not count.
    """
    known = (each for each in records if each.purpose in ("select", "confirm") and not superseded(each, limits))
    found = applicable(known, plugin, lambda record: bool(objection(record, limits)))
    if retry_failed:
        return [record for record in found if not objection(record, limits)]
    short = [record for record in found if record.outcome == "failed" and is_short_of_memory(record.reason)]
    return [record for record in found if len(short) >= MAX_ATTEMPTS or record not in short]


def is_of_this_judge(record: TuningRecord) -> bool:
    """Return whether the present version of the judge made a record, or nobody knows which: no version of plugin is."""
    return not record.key.plugin or record.extra.get("judge") == JUDGE


def superseded(record: TuningRecord, limits: Limits) -> bool:
    """Return whether a record does not apply under the present limits.

    This is so if it failed and could pass now, because more time, more memory or a larger error is allowed, or because
    another version of the judge found it wrong; if it is about other variants, or fewer, or such as were made with less
    effort; or if it cannot be decoded, because a later version or another program wrote it.
    """
    try:
        found = to_outcome(record, limits)
        if isinstance(found, Failed) and found.stage is Stage.CHECK and not is_of_this_judge(record):
            return True
        return _of_other_variants(record, limits) or _may_pass_now(record, limits)
    except (TypeError, ValueError):
        return True


def _of_other_variants(record: TuningRecord, limits: Limits) -> bool:
    """Return whether the variants wanted now differ from those that were tried.

    If the fastest of all variants is deterministic, it is also the fastest deterministic one. The converse does not
    hold: a run limited to deterministic variants skipped others, or never built them. Likewise what is the best of many
    counts where few would be tried.
    """
    extra = record.extra
    only_deterministic = bool(extra.get("only_deterministic", False))
    is_deterministic = only_deterministic or bool(extra.get("deterministic", False))
    if limits.deterministic and record.outcome == "measured" and not is_deterministic:
        return True
    fewer = (
        (only_deterministic and not limits.deterministic)
        or int(extra.get("effort", limits.effort)) < limits.effort
        or int(extra.get("variants", limits.variants)) < limits.variants
    )
    return fewer and not record.reason.startswith((DEADLINE_REASON, *DEADLY_REASONS))


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
