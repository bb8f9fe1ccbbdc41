"""A pattern against a whole model: how lowering learns again what is what in the function it was given."""

from __future__ import annotations

from collage_core.fusion import SubGraph, kernel_function
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.patterns import Match, Matcher, Mismatch, is_op, match, match_model, wildcard
from collage_testing import GraphBuilder, chain, dense

DENSE = is_op("Add")(is_op("MatMul")(wildcard().named("x"), wildcard().named("w")), wildcard().named("b"))


def test_operands_are_found_in_the_function_as_they_were_in_the_model() -> None:
    graph = DataflowGraph(dense(m=4, n=8, k=16))
    there = match(DENSE, graph, 1)
    assert isinstance(there, Match)
    function = kernel_function(SubGraph(graph, there.nodes), "kernel")

    here = match_model(DENSE, function.model)

    assert isinstance(here, Match)
    assert [here.spec(name).static_shape for name in "xwb"] == [(4, 16), (16, 8), (8,)]
    assert [there.spec(name).static_shape for name in "xwb"] == [(4, 16), (16, 8), (8,)]
    assert str(here.captures["w"].name) in function.constants


def test_a_matcher_may_be_kept_for_many_models() -> None:
    matcher = Matcher(DENSE)

    for columns in (8, 10):
        found = match_model(matcher, dense(m=4, n=columns, k=16))
        assert isinstance(found, Match)
        assert found.spec("w").static_shape == (16, columns)


def test_a_pattern_that_leaves_something_out_does_not_match() -> None:
    found = match_model(DENSE, dense(activation="Relu"))

    assert isinstance(found, Mismatch)


def test_the_mismatch_that_got_furthest_is_told() -> None:
    found = match_model(is_op("Relu")(is_op("Exp")(is_op("Tanh")(wildcard()))), chain("Abs", "Exp", "Relu"))

    assert isinstance(found, Mismatch)
    assert found.reason == "abs_0 is Abs, not Tanh"


def test_values_read_outside_a_match_are_its_exits() -> None:
    g = GraphBuilder()
    product = g.op("MatMul", g.input("x", 4, 16), g.weight("w", 16, 8))
    total = g.op("Add", product, g.weight("b", 8))
    graph = DataflowGraph(g.model(g.op("Mul", total, product)))

    found = match(DENSE, graph, 1)

    assert isinstance(found, Match)
    assert found.exits == ("matmul_0", "add_0")
