"""By which power of the calibration kernel's time costs are normalised: what the benchmark makes of records."""

from __future__ import annotations

import pytest

from benchmarks.normalising import found, markdown
from collage.store import RecordKey, TuningRecord
from collage_core.contract import Block


def record(name: str, us: float, speeds: list[float], power: float) -> TuningRecord:
    """A measurement with one sample a block of a kernel that slows down by a power of what the calibration does."""
    key = RecordKey(structural_hash=name, target="a", fingerprint="a 1", host="here", threads=1, launch="", timing="t")
    return TuningRecord(
        key=key,
        outcome="measured",
        purpose="select",
        created="2026-01-01T00:00:00+00:00",
        samples_us=tuple(us * speed**power for speed in speeds),
        blocks=tuple(Block(samples=1, calibration_us=25.0 * speed) for speed in speeds),
    )


@pytest.mark.parametrize("power", [0.0, 0.25, 0.5, 1.0])
def test_the_power_that_made_the_records_is_found_and_leaves_nothing(power: float) -> None:
    speeds = [[1.0, 1.0, 1.01], [1.1, 1.1, 1.2], [0.9, 1.3, 1.3]]
    records = [record(name, us, each, power) for name, us in (("k", 10.0), ("l", 900.0)) for each in speeds]

    report = found(records)

    assert report["pairs"] == 6
    assert report["between"] == pytest.approx(power)
    assert report["within"] == pytest.approx(power)
    assert [each["power"] for each in report["by_size"]] == pytest.approx([power] * len(report["by_size"]))
    left = {each["power"]: each["rms"] for each in report["remaining"]}
    assert left[power] == pytest.approx(0.0, abs=1e-12)
    assert all(left[other] > 0.01 for other in left if other != power)


def test_kernels_measured_once_say_nothing_of_changes_between_measurements() -> None:
    once = record("m", 5.0, [1.0, 2.0], 1.0)
    again = [record("k", 10.0, [speed, speed], 0.5) for speed in (1.0, 1.5)]

    assert found([once, *again])["pairs"] == 1


def test_the_page_has_a_row_for_each_power_and_size() -> None:
    report = found([record("k", 10.0, [speed, speed, 1.1 * speed], 0.5) for speed in (1.0, 1.1, 1.3)])
    host = {"cpu": "a processor", "cores": 2, "system": "Linux"}

    page = markdown({"environment": {"date": "2026-01-01T00:00", "host": host, "versions": {}}, **report})

    assert "| 0.5 | 0.00% | 0.00% |" in page
    assert "| 30.0% |" not in page  # logarithms, not shares
    assert page.count("\n| ") == 2 + 5 + len(report["by_size"])
