"""Plan files whose kernels have quantised products."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from collage.control.plan_file import plan_document, read_plan, write_plan
from collage.control.plan_of_file import planned
from collage.errors import PlanFileError
from collage_core.candidates.plan import Plan
from collage_core.contract import Target
from collage_core.fusion import CandidateKernel, FusionSpec, Partitioning, SubGraph, UnionRule
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.operators.quantising import Int8Product, Range, SymmetricRange
from collage_testing.graphs import GraphBuilder
from tests.engine.exploring import a_target

PLAIN = a_target("narrow")
INT8 = Target(toolchain="narrow", options=(("precision", "int8"),), fingerprint="narrow 1", exact=False)
WEIGHTS = Target(toolchain="narrow", options=(("precision", "int8-weights"),), fingerprint="narrow 1", exact=False)
SPAN = Range(-1.5, 2.25)
INT8_NAME, WEIGHTS_NAME = INT8.name, WEIGHTS.name


@pytest.fixture
def graph() -> DataflowGraph:
    """`matmul_0`, `relu_0`."""
    g = GraphBuilder()
    return DataflowGraph(g.model(g.op("Relu", g.op("MatMul", g.input("x", 3, 4), g.weight("w", 4, 4)))))


@pytest.fixture
def path(graph: DataflowGraph, tmp_path: Path) -> Path:
    write_plan(tmp_path / "mine.json", plan_document(plan_of(graph), None, model="m.onnx", nodes=2))
    return tmp_path / "mine.json"


def plan_of(graph: DataflowGraph, target: Target = INT8, span: Range | None = SPAN) -> Plan:
    spec = FusionSpec(name="narrow", rule=UnionRule(()), targets=(target,))
    kernel = CandidateKernel(SubGraph(graph, 0b11, int8=(Int8Product(0, span),)), spec)
    return Plan(name="mine", single=True, partitioning=Partitioning(graph, (kernel,)), costs_us=(2.0,), dispatch_us=0.0)


def test_a_plan_that_was_saved_is_the_plan_that_is_loaded(graph: DataflowGraph, path: Path) -> None:
    again = planned(read_plan(path), graph, [PLAIN, INT8])

    assert json.loads(path.read_text())["kernels"][0]["int8"] == {graph.names[0]: [-1.5, 2.25]}
    assert again.key == plan_of(graph).key
    assert "ranges" not in json.loads(path.read_text())
    assert read_plan(path).ranges == ""


def test_the_form_of_the_integers_is_the_targets(graph: DataflowGraph, path: Path) -> None:
    again = planned(read_plan(path), graph, [PLAIN, dataclasses.replace(INT8, symmetric=True)])

    [kernel] = again.kernels
    assert [each.span for each in kernel.sub_graph.int8] == [SymmetricRange(-1.5, 2.25)]
    assert again.key != plan_of(graph).key


def test_a_plan_of_weights_alone_is_the_plan_that_is_loaded(graph: DataflowGraph, tmp_path: Path) -> None:
    plan = plan_of(graph, WEIGHTS, None)
    write_plan(tmp_path / "mine.json", plan_document(plan, None, model="m.onnx", nodes=2))

    again = planned(read_plan(tmp_path / "mine.json"), graph, [PLAIN, WEIGHTS])

    assert json.loads((tmp_path / "mine.json").read_text())["kernels"][0]["int8"] == {graph.names[0]: None}
    assert again.key == plan.key != plan_of(graph).key


@pytest.mark.parametrize(("target", "span"), [(INT8_NAME, None), (WEIGHTS_NAME, [-1.0, 1.0])])
def test_a_range_is_for_targets_that_quantise_activations(
    graph: DataflowGraph, path: Path, target: str, span: object
) -> None:
    document = json.loads(path.read_text())
    document["kernels"][0] |= {"target": target, "int8": {graph.names[0]: span}}
    path.write_text(json.dumps(document))

    with pytest.raises(PlanFileError, match="does not take"):
        planned(read_plan(path), graph, [PLAIN, INT8, WEIGHTS])


def test_how_ranges_were_chosen_is_kept(graph: DataflowGraph, tmp_path: Path) -> None:
    document = plan_document(plan_of(graph), None, model="m.onnx", nodes=2, ranges="entropy")
    write_plan(tmp_path / "mine.json", document)

    assert read_plan(tmp_path / "mine.json").ranges == "entropy"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"int8": {"relu": [0, 1]}}, "cannot be in int8"),
        ({"int8": {"missing": [0, 1]}}, "cannot be in int8"),
        ({"int8": {"product": [1, 2]}}, r"a range \[low, high\] with zero in it"),
        ({"int8": {"product": [0]}}, r"a range \[low, high\] with zero in it"),
        ({"int8": ["product"]}, r"a range \[low, high\] with zero in it"),
        ({"target": "narrow"}, "narrow quantises nothing"),
    ],
)
def test_what_cannot_be_quantised_is_one_message(
    graph: DataflowGraph, path: Path, change: dict[str, Any], message: str
) -> None:
    names = {"product": graph.names[0], "relu": graph.names[1]}
    document = json.loads(path.read_text())
    if isinstance(ranges := change.get("int8"), dict):
        change = {"int8": {names.get(name, name): span for name, span in ranges.items()}}
    document["kernels"][0] |= change
    path.write_text(json.dumps(document))

    with pytest.raises(PlanFileError, match=message):
        planned(read_plan(path), graph, [PLAIN, INT8])
