"""Frontiers: which points count, and what is shown of them."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from collage.report.documents.codec import to_json
from collage.report.facts.frontier_facts import FrontierPoint, FrontierReport, with_best_marked
from collage.report.facts.record import LatencyFacts
from collage.report.text.frontier_plot import PICTURES, write_frontier
from collage.report.text.frontier_table import frontier_summary
from tests.engine.report.records import RECORD


def point(error: float, p50: float | None, bound: float | None = None) -> FrontierPoint:
    latency = None
    if p50 is not None:
        latency = LatencyFacts(p50=p50, p90=p50, p99=p50, mean=p50, min=p50, n=30, ci95=(p50 * 0.99, p50 * 1.01))
    return FrontierPoint(
        max_error=bound,
        error=error,
        package=f"{bound}.collage",
        targets=("openvino",),
        kernels=1,
        int8=3 if bound else 0,
        latency_ms=latency,
        ratio=None if p50 is None else p50 / 10,
        ratio_ci95=None if p50 is None else (p50 / 10.1, p50 / 9.9),
        failed="" if p50 is not None else "it crashed",
    )


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.01, 0.02, 0.1]), st.sampled_from([1.0, 2.0, 3.0, 5.0])), max_size=6))
def test_a_point_counts_unless_another_is_as_good_in_both_respects_and_better_in_one(
    drawn: list[tuple[float, float]],
) -> None:
    marked = with_best_marked(tuple(itertools.starmap(point, drawn)))

    for (error, p50), each in zip(drawn, marked, strict=True):
        beaten = any(e <= error and p <= p50 and (e < error or p < p50) for e, p in drawn)
        assert each.is_best == (not beaten)


@pytest.fixture
def report() -> FrontierReport:
    points = (point(0.0, 10.0), point(0.009, 4.0, 0.01), point(0.02, 5.0, 0.03), point(0.0, None, 0.1))
    return FrontierReport(
        model=RECORD.model, host=RECORD.host, threads=2, points=with_best_marked(points), notes=("mind this",)
    )


def test_the_table_has_a_row_for_each_bound(report: FrontierReport) -> None:
    console = Console(width=140, record=True, file=None, force_terminal=False)
    with console.capture() as captured:
        console.print(frontier_summary(report))

    lines = captured.get().splitlines()
    assert any("own types" in line and "10.0" in line and "1.000" in line for line in lines)
    assert any("0.01 " in line and "4.00" in line and "0.400" in line and " 3 " in line for line in lines)
    assert any("0.1 " in line and "failed" in line for line in lines)
    assert any("0.1.collage does not run: it crashed" in line for line in lines)
    assert any("note: mind this" in line for line in lines)


def test_the_json_has_everything(report: FrontierReport) -> None:
    document = json.loads(to_json(report))

    assert [each["max_error"] for each in document["points"]] == [None, 0.01, 0.03, 0.1]
    assert [each["is_best"] for each in document["points"]] == [True, True, False, False]
    assert document["points"][1]["latency_ms"]["p50"] == 4.0
    assert document["schema_version"] == report.schema_version


def test_the_plot_is_written_in_two_formats_and_is_the_same_each_time(report: FrontierReport, tmp_path: Path) -> None:
    files = write_frontier(tmp_path, report)

    assert [path.suffix for path in files] == list(PICTURES)
    png, svg = (path.read_bytes() for path in files)
    assert png.startswith(b"\x89PNG")
    assert svg.startswith(b"<?xml")
    assert "≤ 0.01".encode() in svg or b"0.01" in svg
    nothing = dataclasses.replace(report, points=report.points[3:])
    assert all(path.exists() for path in write_frontier(tmp_path, nothing)), "no point ran"
