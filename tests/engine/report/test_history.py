from __future__ import annotations

import dataclasses
import re

from collage.report.facts.search_facts import BestSoFar
from collage.report.page.history import HEIGHT, WIDTH, history_chart
from tests.engine.report.records import RECORD

HISTORY = (
    BestSoFar(seconds=5.0, candidates=2, predicted_ms=150.0),
    BestSoFar(seconds=20.0, candidates=9, predicted_ms=110.0),
    BestSoFar(seconds=50.0, candidates=14, predicted_ms=90.0),
)
SINGLE = [
    dataclasses.replace(each, alone_ms=140.0 if each.name == "openvino" else 400.0)
    for each in RECORD.comparison.contenders
]
SEARCHED = dataclasses.replace(
    RECORD,
    search=dataclasses.replace(RECORD.search, history=HISTORY),
    comparison=dataclasses.replace(RECORD.comparison, contenders=tuple(SINGLE)),
)


def test_a_record_without_history_has_no_chart() -> None:
    assert history_chart(RECORD) is None


def test_steps_go_down_with_the_best_plan() -> None:
    chart = history_chart(SEARCHED)

    assert chart is not None
    heights = [y for _, y, _ in chart.points]
    assert heights == sorted(heights), "down on the screen is less time"
    assert [text for _, _, text in chart.points][-1] == "90.00 ms after 50.0 s, 14 candidates known"
    assert all(0 <= float(x) <= WIDTH and 0 <= float(y) <= HEIGHT for x, y, _ in chart.points)
    assert re.fullmatch(r"M[\d.]+,[\d.]+(H[\d.]+V[\d.]+){2}H[\d.]+", chart.path)


def test_single_toolchains_are_lines_where_they_are_in_reach() -> None:
    chart = history_chart(SEARCHED)

    assert chart is not None
    assert [line.name for line in chart.lines] == ["openvino"]
    assert chart.points[0][1] < chart.lines[0].at < chart.points[1][1]


def test_one_plan_and_nothing_else_is_drawn_too() -> None:
    search = dataclasses.replace(RECORD.search, history=HISTORY[:1], seconds={})
    alone = dataclasses.replace(RECORD.comparison, contenders=())

    chart = history_chart(dataclasses.replace(RECORD, search=search, comparison=alone))

    assert chart is not None
    assert "changed 0 times" in chart.summary
