"""What a match tells of its surroundings."""

from __future__ import annotations

import pytest

from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.patterns import FusionPattern, Match, is_op, match, variadic, wildcard
from collage_testing import GraphBuilder


@pytest.fixture
def graph() -> DataflowGraph:
    """`add_0 = x @ w + b`, of which the product is also read by a Tanh, and the sum by an Exp."""
    g = GraphBuilder()
    product = g.op("MatMul", g.input("x", 4, 8), g.weight("w", 8, 6))
    total = g.op("Add", product, g.weight("b", 6))
    return DataflowGraph(g.model(g.op("Exp", total), g.op("Tanh", product)))


def found(graph: DataflowGraph) -> Match:
    result = match(is_op("Add")(is_op("MatMul"), wildcard()), graph, graph.index_of("add_0"))
    assert isinstance(result, Match)
    return result


def test_what_is_inside_and_what_is_matched(graph: DataflowGraph) -> None:
    result = found(graph)

    assert [node.name for node in result.contexts] == ["matmul_0", "add_0"]
    assert result.value.name == "add_0"


def test_who_reads_what_leaves_it(graph: DataflowGraph) -> None:
    result = found(graph)

    readers = {value.name: [node.name for node in users] for value, users in result.outside_users.items()}
    assert readers == {"matmul_0": ["tanh_0"], "add_0": ["exp_0"]}
    assert result.exits == ("matmul_0", "add_0")


def test_what_it_reads(graph: DataflowGraph) -> None:
    result = found(graph)

    assert [value.name for value in result.inputs] == ["x"]
    assert {name: tuple(tensor.shape) for name, tensor in result.constants.items()} == {"w": (8, 6), "b": (6,)}


def test_who_makes_and_reads_any_value(graph: DataflowGraph) -> None:
    result = found(graph)
    product = graph.nodes[graph.index_of("matmul_0")].outputs[0]

    assert sorted(node.name for node in result.users(product)) == ["add_0", "tanh_0"]
    producer = result.producer(product)
    assert producer is not None
    assert producer.name == "matmul_0"
    assert result.producer(result.inputs[0]) is None


def test_parts_of_a_pattern_have_values_and_may_be_annotated(graph: DataflowGraph) -> None:
    product, bias = is_op("MatMul"), wildcard()
    entry = FusionPattern(
        name="mock.dense",
        pattern=is_op("Add")(product, bias) | is_op("Gemm"),
        annotations={"product": product, "bias": bias},
    )

    result = entry.match(graph, graph.index_of("add_0"))

    assert isinstance(result, Match)
    assert result.bindings[product] is result.captures["product"]
    assert (result.captures["product"].name, result.captures["bias"].name) == ("matmul_0", "b")
    assert result.spec("bias").shape == (6,)
    with pytest.raises(ValueError, match="annotation 'other' of pattern"):
        FusionPattern(name="mock.dense", pattern=is_op("Add"), annotations={"other": wildcard()})


def test_a_part_that_took_no_part_is_not_annotated(graph: DataflowGraph) -> None:
    bias = wildcard()
    entry = FusionPattern(name="p", pattern=is_op("Exp") | is_op("Add")(wildcard(), bias), annotations={"bias": bias})

    result = entry.match(graph, graph.index_of("exp_0"))

    assert isinstance(result, Match)
    assert result.captures == {}


def test_a_name_met_several_times_keeps_all_values() -> None:
    g = GraphBuilder()
    x, y = g.input("x", 2), g.input("y", 2)
    graph = DataflowGraph(g.model(g.op("Concat", x, y, x, axis=0)))

    result = match(is_op("Concat")(variadic(wildcard().named("part"))), graph, 0)

    assert isinstance(result, Match)
    assert [value.name for value in result.all_captured("part")] == ["x", "y"]
    assert result.captures["part"].name == "x"
    assert result.all_captured("other") == ()
