"""The comparison of `session.run` with the libraries' own calls: its models, and what it makes of figures."""

from __future__ import annotations

import math
from typing import Any

import pytest
from onnx import shape_inference

from benchmarks import run_call


@pytest.mark.parametrize("name", run_call.CASES)
def test_each_model_has_an_output_of_the_stated_size(name: str) -> None:
    case = run_call.CASES[name]

    model = shape_inference.infer_shapes(case.entry.skeleton(), strict_mode=True)

    [output] = model.graph.output
    shape = [dimension.dim_value for dimension in output.type.tensor_type.shape.dim]
    assert math.prod(shape) * 4 == case.nbytes


def test_outputs_take_from_one_kilobyte_to_a_hundred_megabytes() -> None:
    sizes = [case.nbytes for case in run_call.CASES.values()]

    assert sizes == sorted(sizes)
    assert len(sizes) == 5
    assert sizes[0] == 1024
    assert 80e6 < sizes[-1] <= 100e6


def found(ratio: float, low: float, high: float) -> dict[str, Any]:
    interval = {"ratio": ratio, "ci95": [low, high]}
    return {
        "model": "scores",
        "output_bytes": 1024,
        "target": "openvino",
        "library_run_ms": 2.0,
        "plan_run_ms": 2.0 * ratio,
        "run": interval,
        "bound": {"ratio": 1.0, "ci95": [0.99, 1.01]},
    }


@pytest.mark.parametrize(
    ("interval", "verdict"),
    [
        ((1.0, 0.98, 1.03), "holds"),
        ((1.02, 1.0, 1.04), "slower"),
        ((0.9, 0.87, 0.94), "not measured"),
        ((0.5, 0.49, 0.51), "holds"),
    ],
)
def test_only_a_narrow_interval_is_a_measurement(interval: tuple[float, float, float], verdict: str) -> None:
    assert run_call.verdict(found(*interval)) == verdict


def test_a_row_has_a_cell_for_each_heading() -> None:
    [row] = run_call.rows([found(1.01, 0.99, 1.02)])

    assert dict(zip(run_call.HEADINGS, row, strict=True))["output"] == "1 kB"
    assert row[3:7] == ("2.000", "2.020", "1.010", "0.990 - 1.020")
