"""Whether what was measured under one tolerance is usable under another."""

from __future__ import annotations

import dataclasses
import datetime

import pytest

from collage.measure.driver.records import Limits, objection, to_record
from collage.measure.wire.outcomes import Measured, Tolerance
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
