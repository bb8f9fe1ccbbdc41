"""Outputs that say nothing are found, and other inputs are drawn for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from collage.reference import evaluate
from collage.reference.vacuous import vacuous_outputs
from collage.setup.inputs.random_arrays import DRAWS
from collage.setup.workload import Workload
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.io.model_io import save_model
from collage_testing import GraphBuilder

pytestmark = pytest.mark.filterwarnings("ignore:invalid value encountered in log", "ignore:divide by zero")


def thresholds() -> DataflowGraph:
    """`x [2, 8]`: what exceeds ten, which standard normal numbers never do, and the logarithm of `x` less 100."""
    g = GraphBuilder()
    x = g.input("x", 2, 8)
    ten, hundred = g.constant("ten", np.float32(10)), g.constant("hundred", np.float32(100))
    return DataflowGraph(g.model(g.op("Relu", g.op("Sub", x, ten)), g.op("Log", g.op("Sub", x, hundred))))


def found(graph: DataflowGraph, x: object) -> dict[str, str]:
    values = evaluate(graph.model, {"x": np.asarray(x, np.float32)}).values
    return vacuous_outputs(graph, values.__getitem__)


def test_an_output_of_zeros_or_without_a_number_is_named() -> None:
    assert found(thresholds(), np.zeros((2, 8))) == {"relu_0": "zero", "log_0": "NaN or infinite"}
    assert found(thresholds(), np.full((2, 8), 200.0)) == {}
    assert found(thresholds(), np.full((2, 8), 50.0)) == {"log_0": "NaN or infinite"}


def test_integers_of_zeros_may_be_what_is_asked_for() -> None:
    g = GraphBuilder()
    graph = DataflowGraph(g.model(g.op("ArgMax", g.input("x", 2, 8), axis=1)))

    assert found(graph, -np.arange(16).reshape(2, 8)) == {}


def test_other_inputs_are_drawn_until_there_are_no_more_ways(tmp_path: Path) -> None:
    save_model(thresholds().model, tmp_path / "t.onnx")
    workload = Workload(tmp_path / "t.onnx")
    drawn = [workload.inputs["x"]]
    while workload.redraw():
        drawn.append(workload.inputs["x"])

    assert len(drawn) == len(DRAWS)
    assert "relu_0" in found(workload.graph, drawn[0])
    assert any("relu_0" not in found(workload.graph, x) for x in drawn)
    assert not workload.redraw()
    assert not np.array_equal(workload.fresh_inputs()["x"], workload.inputs["x"])


def test_what_the_user_gave_is_not_drawn_again(tmp_path: Path) -> None:
    save_model(thresholds().model, tmp_path / "t.onnx")

    assert not Workload(tmp_path / "t.onnx", inputs={"x": np.zeros((2, 8), np.float32)}).redraw()
