"""Which nodes the importer refuses, in whose words: the real one's where it is installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir
import pytest

from collage_core.contract import Supported, Unsupported
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.patterns import NodeContext
from collage_tensorrt.network import read
from collage_tensorrt.patterns import takes
from collage_tensorrt.query import problem, refusals
from collage_testing import GraphBuilder, mnist

from .emulated import Library
from .machine import plugin_over, target, whole

D = onnx_ir.DataType


def test_every_refused_node_is_named_and_no_other(library: Any) -> None:
    g = GraphBuilder()
    x = g.op("Relu", g.input("x", 4, 4, 4))
    model = g.model(g.op("Det", x), g.op("Exp", x), g.op("Det", g.op("Neg", x)))

    opinion = plugin_over(library).collage_query(target(), whole(model))

    assert opinion == dict.fromkeys(("det_0", "det_1"), "Det: unsupported node")


def test_what_it_finds_when_it_makes_the_nodes_is_named_beside_what_its_checks_find(library: Any) -> None:
    g = GraphBuilder()
    x = g.op("Relu", g.input("x", 4, 4))
    model = g.model(g.op("Det", x), g.op("NonZero", x), g.op("Exp", x))

    opinion = refusals(library, model)

    assert opinion is not None
    assert set(opinion) == {"det_0", "nonzero_0"}
    assert "NonZero plugin creator version 1 was not found" in opinion["nonzero_0"]


def test_a_model_it_takes_whole_is_asked_about_once() -> None:
    library = Library()

    assert refusals(library, mnist()) == {}
    assert library.parses == 1


def test_the_real_importer_takes_the_same_model(rtx: Any) -> None:
    assert refusals(rtx, mnist()) == {}


def reshaped(g: GraphBuilder) -> onnx_ir.Value:
    return g.op("Reshape", g.input("x", 4, 4), g.input("s", 2, dtype=D.INT64))


def doubled(g: GraphBuilder) -> onnx_ir.Value:
    return g.op("Exp", g.input("x", 4, 4, dtype=D.DOUBLE))


def sixteen(g: GraphBuilder) -> onnx_ir.Value:
    return g.op("Cast", g.input("x", 4), to=int(D.UINT16))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (reshaped, "it reads 's' on the host, to know a shape before it runs"),
        (doubled, "which does not cross its boundary"),
    ],
)
def test_what_could_not_be_bound_is_refused(
    make: Callable[[GraphBuilder], onnx_ir.Value], reason: str, library: Any
) -> None:
    g = GraphBuilder()

    assert reason in (problem(library, g.model(make(g))) or "")


def test_a_network_of_other_types_than_the_model_says_is_refused(rtx: Any) -> None:
    """Strictly typed, a Relu gives what it reads; this model says otherwise."""
    g = GraphBuilder()
    model = g.model(g.op("Relu", g.input("x", 4)))
    model.graph.outputs[0].dtype = D.FLOAT16

    answer = problem(rtx, model)

    assert answer is not None
    assert "relu_0" in answer


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (doubled, "'x' is float64, of which its importer makes float32"),
        (sixteen, "TensorRT has no UINT16, which 'cast_0' is"),
        (lambda g: g.op("SequenceConstruct", g.input("x", 4)), "no sequences and optionals"),
        (lambda g: g.op("Relu", g.input("x", 4), domain="local"), "none of 'local'"),
    ],
)
def test_what_its_predicate_refuses(make: Callable[[GraphBuilder], onnx_ir.Value], reason: str) -> None:
    g = GraphBuilder()
    output = make(g)
    graph = onnx_ir.Graph(g._inputs, [output], nodes=g._nodes, opset_imports={"": 20, "local": 1}, name="g")
    for node in graph:
        for value in node.outputs:
            if node.op_type == "Cast":
                value.dtype, value.shape = D.UINT16, onnx_ir.Shape([4])

    answer = takes(NodeContext(DataflowGraph(onnx_ir.Model(graph, ir_version=10)), 0))

    assert isinstance(answer, Unsupported)
    assert reason in answer.reason


def with_function() -> onnx_ir.Model:
    """One call of a function of the model's own, which negates."""
    g = GraphBuilder()
    model = g.model(g.op("Exp", g.input("x", 4)))
    given, result = onnx_ir.Value(name="a"), onnx_ir.Value(name="b")
    node = onnx_ir.node("Neg", [given], outputs=[result], name="inner")
    body = onnx_ir.Graph([given], [result], nodes=[node], opset_imports={"": 20})
    function = onnx_ir.Function("local", "negated", graph=body, attributes=())
    model.functions[function.identifier()] = function
    model.opset_imports["local"] = 1
    [call] = model.graph
    call.domain, call.op_type = "local", "negated"
    return model


def test_a_function_of_the_model_is_proposed() -> None:
    assert isinstance(takes(NodeContext(DataflowGraph(with_function()), 0)), Supported)


def test_the_importer_reads_the_bodies_of_functions(rtx: Any) -> None:
    assert problem(rtx, with_function()) is None


def test_weights_are_part_of_what_is_read(rtx: Any) -> None:
    g = GraphBuilder()
    model = g.model(g.op("Add", g.input("x", 3), g.constant("w", np.arange(3, dtype=np.float32))))

    network = read(rtx, model)

    assert not isinstance(network, str)
    assert [network.network.get_input(place).name for place in range(network.network.num_inputs)] == ["x"]
