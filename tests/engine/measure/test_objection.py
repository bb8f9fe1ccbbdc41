"""Whether what was measured under one tolerance, or with one effort, is usable under another."""

from __future__ import annotations

import dataclasses
import datetime

import pytest

from collage.measure.driver.records import DEADLINE_REASON, Limits, objection, to_record, usable_records
from collage.measure.wire.outcomes import Failed, Measured, Outcome, Refused, Stage, Tolerance
from collage.store import RecordKey

KEY = RecordKey(structural_hash="h", target="t", fingerprint="f", host="c", threads=2, launch="eager", timing="t")
INEXACT = Measured(samples_us=(1.0,), warmup_runs=1, calls_per_sample=1, error=4e-3)


def allowing(relative: float) -> Limits:
    return Limits(tolerance=Tolerance(relative=relative), deadline_s=60.0)


@pytest.mark.parametrize(
    ("judged_at", "allowed", "usable"),
    [
        (1e-3, 1e-3, True),  # 16 bits round so: the judge knew, and let it pass
        (1e-3, 1e-2, True),
        (1e-3, 1e-4, False),
        (1e-1, 1e-3, False),
        (None, 1e-3, False),  # nobody knows what it was held to
        (None, 1e-2, True),
    ],
)
def test_an_error_counts_where_less_is_allowed_than_when_it_was_judged(
    judged_at: float | None, allowed: float, usable: bool
) -> None:
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    record = to_record(INEXACT, KEY, "select", now, allowing(judged_at or allowed))
    if judged_at is None:
        record = dataclasses.replace(record, extra={})

    said = objection(record, allowing(allowed))

    assert said == ("" if usable else f"wrong numbers: error 0.004 of the tensor's scale, allowed {allowed:g}")


QUICK, DEFAULT, EXTENSIVE = (
    Limits(tolerance=Tolerance(), deadline_s=60.0, effort=effort, variants=variants)
    for effort, variants in ((0, 1), (1, 1), (2, 4))
)
OUTCOMES: list[Outcome] = [
    dataclasses.replace(INEXACT, error=0.0),
    Refused(reason="no such variant"),
    Failed(stage=Stage.CHECK, reason="wrong numbers"),
]


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda outcome: type(outcome).__name__)
@pytest.mark.parametrize(
    ("before", "now", "usable"),
    [
        (QUICK, QUICK, True),
        (QUICK, DEFAULT, False),
        (DEFAULT, EXTENSIVE, False),
        (EXTENSIVE, DEFAULT, True),
        (EXTENSIVE, QUICK, True),
        (dataclasses.replace(DEFAULT, variants=4), EXTENSIVE, False),
        (dataclasses.replace(DEFAULT, effort=2), EXTENSIVE, False),
    ],
)
def test_what_was_tried_with_less_effort_or_fewer_variants_is_tried_again(
    outcome: Outcome, before: Limits, now: Limits, usable: bool
) -> None:
    record = to_record(outcome, KEY, "select", datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), before)

    assert usable_records([record], "", now) == [record] * usable


@pytest.mark.parametrize("reason", [f"{DEADLINE_REASON}: killed", "worker crash: signal 11"])
def test_what_cost_a_worker_with_less_effort_is_not_tried_with_more(reason: str) -> None:
    outcome = Failed(stage=Stage.RUN, reason=reason)
    record = to_record(outcome, KEY, "select", datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), QUICK)

    assert usable_records([record], "", EXTENSIVE) == [record]


def test_records_that_say_nothing_of_effort_count() -> None:
    """They are in databases and archives of before it was written down."""
    record = to_record(OUTCOMES[0], KEY, "select", datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), QUICK)
    extra = {key: value for key, value in record.extra.items() if key not in ("effort", "variants")}
    older = dataclasses.replace(record, extra=extra)

    assert usable_records([older], "", EXTENSIVE) == [older]
