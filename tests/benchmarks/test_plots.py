"""Plots show what results say: every model is named, and points are where the numbers are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import plots

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


def results(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def points(figure: Any, marker: str) -> list[float]:
    """Where single points of one form are, from below."""
    lines = [line for line in figure.axes[0].get_lines() if line.get_marker() == marker and len(line.get_xdata()) == 1]
    return [float(line.get_xdata()[0]) for line in lines]


@pytest.mark.parametrize(("kind", "name"), [("suite", "suite-xeon-amx-2-cores"), ("regret", "regret-xeon-amx-2-cores")])
def test_a_plot_names_every_model(kind: str, name: str, tmp_path: Path) -> None:
    picture = tmp_path / "plot.svg"

    assert plots.main([kind, str(RESULTS / f"{name}.json"), str(picture)]) == 0

    text = picture.read_text(encoding="utf-8")
    assert [model["name"] for model in results(name)["models"] if model["name"] not in text] == []


def test_predictions_are_drawn_against_what_was_measured() -> None:
    report = results("predictions-xeon-amx-2-cores")
    plans = [plan for model in report["models"] for plan in model["plans"]]

    alone, after = plots.predictions(report).axes[0].collections

    for drawn, name in ((alone, "alone_ms"), (after, "predicted_ms")):
        expected = [(plan[name], plan["usual_ms"]) for plan in plans]
        assert [tuple(map(float, point)) for point in drawn.get_offsets()] == expected


def test_what_searches_keep_is_drawn_beside_the_best_plan() -> None:
    report = {
        "models": [
            {
                "name": name,
                "plans": {"p": {"us": us}, "q": {"us": 70.0}},
                "best": "p",
                "single": {"us": 100.0},
                "regret": regret,
                "worst": 0.2,
            }
            for name, us, regret in (("small", 50.0, 0.1), ("none", 60.0, 0.0))
        ]
    }
    figure = plots.regret(report)

    assert points(figure, "|") == pytest.approx([0.6, 0.5])
    assert points(figure, "o") == pytest.approx([0.6, 0.55])
    spans = [line.get_xdata() for line in figure.axes[0].get_lines() if line.get_alpha() == 0.5]
    assert [list(span) for span in spans] == [pytest.approx([0.6, 0.72]), pytest.approx([0.5, 0.6])]


def test_groups_are_sorted_by_what_fusing_them_gains() -> None:
    report = {
        "groups": [
            {"model": "a", "kind": "Relu LRN", "ratio": 0.4, "ci95": [0.39, 0.41]},
            {"model": "b", "kind": "Conv Relu", "ratio": 1.5, "ci95": [1.4, 1.6]},
        ]
    }
    figure = plots.groups(report)

    assert points(figure, "o") == [1.5, 0.4]
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["Conv Relu (b)", "Relu LRN (a)"]


def test_groups_that_did_not_race_are_refused() -> None:
    with pytest.raises(SystemExit, match="did not race"):
        plots.groups(results("fused-groups-xeon-amx-2-cores"))


def test_the_best_plan_over_time_begins_and_ends_as_recorded() -> None:
    record = {
        "search": {
            "history": [{"seconds": 1.0, "predicted_ms": 4.0}, {"seconds": 3.0, "predicted_ms": 2.0}],
        },
        "comparison": {
            "contenders": [{"kind": "single", "name": "openvino", "alone_ms": 3.0, "predicted_ms": None}],
        },
    }
    figure = plots.search(record)

    steps, single = figure.axes[0].get_lines()
    assert list(steps.get_ydata()) == [4.0, 2.0, 2.0]
    assert list(single.get_ydata()) == [3.0, 3.0]


def test_a_plan_that_was_given_has_no_search_to_draw() -> None:
    with pytest.raises(SystemExit, match="no search"):
        plots.search({"search": {"history": []}, "comparison": {"contenders": []}})
