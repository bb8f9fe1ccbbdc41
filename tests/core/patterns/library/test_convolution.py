from __future__ import annotations

import pytest

from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.patterns import Match, is_op, match
from collage_core.patterns.library.convolution import conv_pattern
from collage_testing import GraphBuilder


def convolution(*, bias: str = "", skip: bool = False, activation: str = "", operator: str = "Conv") -> DataflowGraph:
    """A convolution of 2 to 4 channels, with `b` by "Add" or as the third "operand", plus `skip`, activated."""
    g = GraphBuilder()
    weight = g.weight("w", 4, 2, 3, 3) if operator == "Conv" else g.weight("w", 2, 4, 3, 3)
    third = [g.weight("b", 4)] if bias == "operand" else []
    value = g.op(operator, g.input("x", 1, 2, 8, 8), weight, *third, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    if bias == "Add":
        value = g.op("Add", value, g.weight("b", 4, 1, 1))
    if skip:
        value = g.op("Add", value, g.op("Tanh", g.input("skip", 1, 4, 8, 8)))
    if activation:
        value = g.op(activation, value)
    return DataflowGraph(g.model(value))


@pytest.mark.parametrize("bias", ["", "operand", "Add"])
@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("activation", ["", "Relu"])
def test_each_form_is_found_by_its_options_and_by_open_ones(bias: str, skip: bool, activation: str) -> None:
    graph = convolution(bias=bias, skip=skip, activation=activation)
    last = len(graph) - 1
    last_name = str(graph.nodes[last].outputs[0].name)
    tanh = 1 << graph.index_of("tanh_0") if skip else 0

    for has_bias, has_skip in ((bool(bias), skip), (None, None)):
        found = match(conv_pattern(bias=has_bias, residual=has_skip, activation=activation or None), graph, last)

        assert isinstance(found, Match)
        assert found.nodes == graph.all_mask & ~tanh
        expected = {"x": "x", "weight": "w", "convolution": "conv_0"}
        expected |= {"bias": "b"} if bias else {}
        expected |= {"residual": "tanh_0"} if skip else {}
        expected |= {"activation": last_name} if activation else {}
        assert {name: value.name for name, value in found.captures.items()} == expected


def test_a_bias_that_must_not_be_there_or_is_not_there_is_no_match() -> None:
    assert not match(conv_pattern(), convolution(bias="operand"), 0)
    assert not match(conv_pattern(bias=True), convolution(), 0)
    assert not match(conv_pattern(activation="Relu"), convolution(activation="Tanh"), 1)


def test_the_operator_may_be_the_transposed_one_and_the_activation_a_choice() -> None:
    graph = convolution(operator="ConvTranspose", activation="Sigmoid")
    pattern = conv_pattern(operator="ConvTranspose", activation=is_op("Relu", "Sigmoid"))

    assert match(pattern, graph, 1)
    assert not match(conv_pattern(activation=is_op("Relu", "Sigmoid")), graph, 1)


def test_a_sum_of_two_is_an_add_and_a_sum_of_three_is_not() -> None:
    for count, found in ((2, True), (3, False)):
        g = GraphBuilder()
        value = g.op("Conv", g.input("x", 1, 2, 8, 8), g.weight("w", 4, 2, 1, 1))
        skips = [g.op("Tanh", g.input(f"skip{number}", 1, 4, 8, 8)) for number in range(count - 1)]
        graph = DataflowGraph(g.model(g.op("Relu", g.op("Sum", *skips, value))))

        assert bool(match(conv_pattern(residual=True, activation="Relu"), graph, len(graph) - 1)) == found
