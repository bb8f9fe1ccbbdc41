"""Everything the builders make is a valid model that the reference runs."""

from __future__ import annotations

from collections.abc import Callable

import onnx
import onnx_ir
import pytest
from hypothesis import given, settings

from collage.reference import evaluate
from collage.setup.inputs.random_arrays import random_inputs
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_testing import chain, crossed, dense, diamond, mnist, operator_models, single_matmul
from collage_testing.strategies import models

NAMED: dict[str, Callable[[], onnx_ir.Model]] = {
    "chain": lambda: chain("Relu", "Exp", "Relu"),
    "crossed": crossed,
    "dense": lambda: dense(activation="Relu"),
    "diamond": diamond,
    "mnist": mnist,
    "single_matmul": lambda: single_matmul(2, 3, 4),
}


def check(model: onnx_ir.Model) -> None:
    onnx.checker.check_model(onnx_ir.to_proto(model), full_check=True)
    graph = DataflowGraph(model)
    values = evaluate(model, random_inputs(graph, seed=0)).values
    for value in model.graph.outputs:
        spec = graph.spec(value)
        if spec.shape is not None and None not in spec.shape:
            assert values[str(value.name)].shape == spec.shape


@pytest.mark.parametrize("name", NAMED)
def test_named_models_are_valid(name: str) -> None:
    check(NAMED[name]())


@pytest.mark.parametrize(("name", "model"), operator_models().items())
def test_operator_models_are_valid_and_of_one_node(name: str, model: onnx_ir.Model) -> None:
    check(model)
    assert len(list(model.graph)) == 1


@given(models())
@settings(max_examples=40, deadline=None)
def test_random_models_are_valid_and_have_no_dead_node(model: onnx_ir.Model) -> None:
    check(model)
    assert len(DataflowGraph(model)) == len(list(model.graph))
