"""What is expected over several input shapes, its limits and its page."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from benchmarks.shapes import CASES, DYNAMIC, OWN, exceeded, expected, markdown
from collage.cli.options.parameters import input_shape

ENVIRONMENT = {"date": "2026-01-01T00:00:00", "host": {"cpu": "c", "cores": 2, "system": "s"}, "versions": {}}


def result(own: float = 0.9, measured: int = 0, error: float = 1e-6) -> dict[str, Any]:
    """Two sizes; the second takes ten times as long, and OpenVINO is best there."""
    times = {
        OWN: [[own * 100.0] * 5, [own * 1000.0] * 5],
        "onnxruntime": [[100.0] * 5, [1100.0] * 5],
        "openvino": [[150.0] * 5, [1000.0] * 5],
    }
    size: dict[str, Any] = {"measured": 7, "known": 3, "seconds": 9.0, "plan": [["openvino", 12]]}
    done: dict[str, Any] = {"seconds": 20.0, "sizes": [size, dict(size)]}
    again = copy.deepcopy(done)
    for each in again["sizes"]:
        each["measured"] = measured
    return {
        "sizes": [1, 10],
        "cold": done,
        "anew": again,
        "times_us": {"bound": times, "called": times},
        "errors": [error, error],
        "package_bytes": 2_000_000,
        "model_bytes": 1_500_000,
    }


def report(**changed: Any) -> dict[str, Any]:
    return {"environment": ENVIRONMENT, "cases": {"cnn": result(**changed)}}


def test_the_base_is_the_toolchain_that_takes_least_over_all_sizes() -> None:
    base, ratio = expected(result()["times_us"]["bound"])

    assert base == "openvino"
    assert ratio.value == pytest.approx(0.9 * 1100 / 1150)


@pytest.mark.parametrize(
    ("changed", "count"),
    [({}, 0), ({"own": 1.2}, 2), ({"measured": 1}, 1), ({"error": 0.01}, 2), ({"error": float("nan")}, 2)],
)
def test_what_is_not_as_it_has_to_be_is_named(changed: dict[str, Any], count: int) -> None:
    assert len(exceeded(report(**changed))) == count


def test_the_page_has_a_row_for_each_size_and_what_is_expected() -> None:
    page = markdown(report())

    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| cnn")]
    assert [row[1] for row in rows] == ["1", "10", "expected"]
    assert rows[0][2:6] == ["0.090", "0.100", "0.150", "0.900 [0.900, 0.900]"]
    assert rows[2][5].endswith("of openvino")
    assert "the package has 2.0 MB, the model 1.5 MB" in page
    assert "0 candidates are measured" in page


@pytest.mark.parametrize("name", CASES)
def test_the_command_is_given_every_size(name: str) -> None:
    case = CASES[name]

    name, shapes = input_shape(case.option)

    assert name == case.input
    assert shapes == tuple(case.of(size) for size in case.sizes)
    assert set(DYNAMIC) == {"onnxruntime", "openvino"}
