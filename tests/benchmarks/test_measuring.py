"""How far one measurement can be trusted: what the benchmark makes of measurements."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.measuring import REPORTED, WAYS, judged, markdown, summary, with_reported
from collage.measure.driver.repeats import LEAST
from collage.store import RecordKey, TuningRecord
from collage_core.contract import Block

KEY = RecordKey(structural_hash="h", target="a", fingerprint="a 1", host="here", threads=1, launch="", timing="t")


def record(slower: float, *block_us: float) -> TuningRecord:
    """A measurement with one sample a block, on a machine that makes it slower than usual by a factor."""
    return TuningRecord(
        key=KEY,
        outcome="measured",
        purpose="confirm",
        created="2026-01-01T00:00:00+00:00",
        samples_us=tuple(slower * us for us in block_us),
        blocks=tuple(Block(samples=1, calibration_us=100.0 * slower**2) for _ in block_us),
    )


def test_coverage_counts_the_intervals_that_contain_the_long_run_cost() -> None:
    records = [record(1.0, 9.0, 10.0, 11.0), record(1.0, 9.0, 10.0, 12.0), record(1.0, 19.0, 20.0, 21.0)]

    found = judged(records, 100.0, WAYS["samples"])

    assert found == {"us": 10.0, "covered": pytest.approx(2 / 3), "half_width": 0.1, "off": 0.0}


def test_a_machine_whose_speed_changes_covers_only_what_is_normalised() -> None:
    records = [record(slower, 9.0, 10.0, 11.0) for slower in (1.0, 2.0, 4.0)]

    found = {way: judged(records, 100.0, values) for way, values in WAYS.items()}

    assert found["normalised blocks"] == pytest.approx({"us": 10.0, "covered": 1.0, "half_width": 0.1, "off": 0.0})
    assert found["samples"]["us"] == 20.0
    assert found["samples"]["covered"] == pytest.approx(1 / 3)


def test_the_page_has_a_row_for_each_way_and_each_kernel() -> None:
    def kernel(covered: float, off: float) -> dict[str, Any]:
        figures = {"us": 12.5, "covered": covered, "half_width": 0.02, "off": off}
        return {"model": "m", "target": "a", "nodes": ["x", "y"], "times": 3, "ways": dict.fromkeys(WAYS, figures)}

    kernels = [kernel(0.8, 0.01), kernel(1.0, 0.03)]
    environment = {"date": "2026-01-01T00:00:00", "host": {"cpu": "c", "cores": 2, "system": "s"}, "versions": {}}

    page = markdown({"environment": environment, "times": 3, "kernels": kernels})

    assert summary(kernels, "samples") == {"covered": pytest.approx(0.9), "half_width": 0.02, "off": 0.02}
    assert "2 kernels, each measured 3 times" in page
    assert "| normalised blocks | 90.0% | 2.00% | 2.00% |" in page
    assert "| m | a | 2 | 12.5 | 80% | 1.0% | 80% | 1.0% |" in page
    assert "| m | a | 2 | 12.5 | 100% | 3.0% | 100% | 3.0% |" in page


def test_reports_go_by_the_first_two_measurements_of_all_kernels_and_are_judged_by_the_others() -> None:
    def kernel(*costs_us: float) -> dict[str, Any]:
        return {"costs_us": costs_us, "ways": {"normalised blocks": {"off": 0.1}}}

    kernels = [kernel(10.0, 12.0, 11.0, 9.0, 30.0), *(kernel(10.0, 10.0, 10.0, 10.0, 10.0) for _ in range(LEAST))]

    with_reported(kernels)

    # the first kernel changed by a fifth, the others not at all: that is what 95 % of nine say
    first, second = kernels[0]["ways"][REPORTED], kernels[1]["ways"][REPORTED]
    assert first["us"] == 11.0
    assert first["covered"] == pytest.approx(1 / 3), "9.0 is more than a fifth below, 30.0 far above"
    assert second == {"us": 10.0, "covered": 1.0, "half_width": pytest.approx((1.2 - 1 / 1.2) / 2), "off": 0.1}
