"""Predicted and measured latencies: what the benchmark makes of reports, and which figures do not hold."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.all_models import writers
from benchmarks.predictions import errors, lost, markdown


def result(seconds: float, *plans: tuple[float, float, float]) -> dict[str, Any]:
    """A model with plans of several kernels: alone, predicted and measured milliseconds."""
    return {
        "name": "m",
        "seconds": seconds,
        "kept": 2,
        "plans": [
            {"name": f"mixed-{number}", "regions": 2, "alone_ms": alone, "predicted_ms": predicted, "usual_ms": took}
            for number, (alone, predicted, took) in enumerate(plans, start=1)
        ],
    }


def test_all_forty_generated_models_and_the_suite_can_be_named() -> None:
    assert {"resnet50", "segmenter", "r00-camera-squeezenet-stem-bilinear-argmax"} <= set(writers())
    assert len(writers()) > 50


def test_errors_are_of_every_plan_in_both_directions() -> None:
    results = [result(1.0, (8.0, 10.0, 10.0)), result(1.0), result(1.0, (10.0, 8.0, 10.0))]

    assert errors(results, "alone_ms") == pytest.approx([0.25, 0.0])
    assert errors(results, "predicted_ms") == pytest.approx([0.0, 0.25])


@pytest.mark.parametrize(
    ("results", "said"),
    [
        ([result(300.0, (8.0, 9.6, 10.0))], []),
        ([result(1.0, (9.9, 9.0, 10.0))], ["the median error after feedback is 11.1%; 5% may be"]),
        ([result(301.0)], ["m took 301 s"]),
    ],
)
def test_what_does_not_hold_is_said(results: list[dict[str, Any]], said: list[str]) -> None:
    assert lost(results) == said


def test_the_page_has_a_row_for_each_plan() -> None:
    environment = {"date": "2026-01-01T00:00:00", "host": {"cpu": "c", "cores": 2, "system": "s"}, "versions": {}}
    page = markdown({"environment": environment, "models": [result(60.0, (8.0, 9.0, 10.0)), result(30.0)]})

    assert "| m | 60 | 2 | mixed-1 | 8.000 | 9.000 | 10.000 | +25.0% | +11.1% |" in page
    assert "Median absolute error over 1 plans: alone 25.0%, after feedback 11.1%." in page
    assert "No plan of several kernels was timed on m (30 s)." in page
