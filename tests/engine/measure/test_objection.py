"""Whether what was measured under one tolerance is usable under another."""

from __future__ import annotations

import pytest

from collage.measure.driver.records import Limits, objection
from collage.measure.wire.outcomes import Tolerance
from collage.store import RecordKey, TuningRecord

KEY = RecordKey(structural_hash="h", target="t", fingerprint="f", host="c", threads=2, launch="eager", timing="t")


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
    record = TuningRecord(
        key=KEY,
        outcome="measured",
        purpose="select",
        created="2026-01-01T00:00:00+00:00",
        samples_us=(1.0,),
        error=4e-3,
        extra={} if judged_at is None else {"tolerance": judged_at},
    )
    limits = Limits(tolerance=Tolerance(relative=allowed, mismatched=allowed), deadline_s=60.0)

    said = objection(record, limits)

    assert said == ("" if usable else f"wrong numbers: error 0.004 of the tensor's scale, allowed {allowed:g}")
