"""The table of profiles says what is attributed, and fails below nine tenths."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.profiles import holds, main, markdown, rows, unattributed

ENVIRONMENT = {
    "date": "2026-01-02T03:04:05+00:00",
    "host": {"cpu": "A", "cores": 2, "system": "Linux"},
    "versions": {"python": "3.11"},
}


def result(attributed: float = 1.0, **facts: Any) -> dict[str, Any]:
    rest = [{"name": "Reorder r1", "time_us": 1000.0 * (1 - attributed)}] if attributed < 1 else []
    return {
        "model": "m",
        "target": "t",
        "nodes": 9,
        "covered": 8,
        "latency_us": 900.0,
        "profile_us": 1000.0,
        "attributed": attributed,
        "conversions": 0.05,
        "parts": 4,
        "nodes_in_parts": 8,
        "largest": {"nodes": ["a", "b", "c", "d"], "share": 0.5},
        "unattributed": rest,
    } | facts


def test_less_than_nine_tenths_and_a_model_without_a_profile_fail() -> None:
    refused = {"model": "m", "target": "u", "nodes": 9, "refused": "no"}

    assert holds([result(), refused])
    assert holds([result(0.9)])
    assert not holds([result(), result(0.89)])
    assert not holds([result(), refused | {"model": "other"}])


def test_the_page_has_shares_and_the_largest_unattributed_entries() -> None:
    results = [result(0.75), {"model": "m", "target": "u", "nodes": 9, "refused": "no profiler"}]

    page = markdown(results, ENVIRONMENT)

    assert next(rows(results))[2:] == (
        *("8 of 9", "0.90", "1.00", "75.0%", "5.0%", "4"),
        "50%: a, b, c and 1 more",
    )
    assert list(unattributed(results)) == ["m, t: Reorder r1 250 us"]
    assert "- m, t: Reorder r1 250 us" in page
    assert "refused: no profiler" in page


@pytest.mark.plugins
def test_a_small_model_is_profiled(tmp_path: Path) -> None:
    results = tmp_path / "profiles.json"

    assert main(["mnist", "--work", str(tmp_path), "--results", str(results), "--toolchains", "onnxruntime"]) == 0

    [found, *_] = json.loads(results.read_text())["profiles"]
    assert (found["model"], found["attributed"], found["nodes_in_parts"]) == ("mnist", 1.0, found["nodes"])
    assert "mnist" in results.with_suffix(".md").read_text()
