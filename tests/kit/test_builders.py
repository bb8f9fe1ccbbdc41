"""Everything the builders make is a valid model that the reference runs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import onnx
import onnx_ir
import pytest
from hypothesis import given, settings

from collage.reference import evaluate
from collage.setup.random_inputs import random_inputs
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_testing import GraphBuilder, chain, crossed, dense, diamond, mnist, operator_models, single_matmul
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


def test_nodes_are_numbered_by_operator() -> None:
    assert [node.name for node in chain("Relu", "Exp", "Relu").graph] == ["relu_0", "exp_0", "relu_1"]


def test_what_no_output_depends_on_is_left_out() -> None:
    g = GraphBuilder()
    x = g.input("x", 2)
    g.op("Mul", x, g.weight("unused", 2))
    model = g.model(g.op("Relu", x))

    assert [node.op_type for node in model.graph] == ["Relu"]
    assert not model.graph.initializers
    assert len(list(model.graph.inputs[0].uses())) == 1


def test_equal_seeds_give_equal_weights() -> None:
    def weights(seed: int) -> list[float]:
        value = GraphBuilder(seed=seed).weight("w", 3)
        assert value.const_value is not None
        return list(value.const_value.numpy())

    assert weights(1) == weights(1) != weights(2)


def test_the_kit_needs_neither_pytest_nor_hypothesis_and_no_search_until_something_is_searched() -> None:
    script = """
import sys
sys.modules["pytest"] = sys.modules["hypothesis"] = None
import collage_testing as kit
assert not {"collage", "collage_core.search"} & set(sys.modules)
assert all(hasattr(kit, name) for name in kit.__all__)
assert callable(kit.partition)
assert not hasattr(kit, "nonsense")
"""
    subprocess.run([sys.executable, "-c", script], check=True)
