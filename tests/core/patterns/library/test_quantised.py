"""Patterns of quantised operators against the groups that fusion finds in another way."""

from __future__ import annotations

from collage_core.fusion import quantised_groups
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.patterns import Match, Pattern, match
from collage_core.patterns.library.quantised import dequantize_pattern, qdq_pattern, quantize_pattern
from tests.core.fusion.qdq import QdqBuilder


def matched(pattern: Pattern, graph: DataflowGraph) -> set[int]:
    """Masks of what the pattern matches anywhere."""
    found = (match(pattern, graph, index) for index in range(len(graph)))
    return {each.nodes for each in found if isinstance(each, Match)}


def block() -> DataflowGraph:
    """Two convolutions, the first with an activation, and a sum around both: a quantised residual block."""
    g = QdqBuilder()
    x = g.q(g.input("x", 1, 2, 4, 4))
    first = g.op("Conv", g.dq(x), g.dq(g.int8("w0", 2, 2, 1, 1)), g.weight("b0", 2))
    main = g.q(g.op("Relu", first))
    main = g.q(g.op("Conv", g.dq(main), g.dq(g.int8("w1", 2, 2, 1, 1)), g.weight("b1", 2)))
    return DataflowGraph(g.model(g.q(g.op("Add", g.dq(x), g.dq(main)))))


def test_every_group_of_a_quantised_block_is_one_match() -> None:
    graph = block()
    groups = set(quantised_groups(graph))
    convolution = qdq_pattern("Conv", activation="Relu") | qdq_pattern("Conv")

    assert len(groups) == 3
    assert matched(convolution, graph) | matched(qdq_pattern("Add"), graph) == groups


def test_operands_and_scales_are_captured_before_they_are_dequantized() -> None:
    graph = block()

    found = match(qdq_pattern("Conv", activation="Relu"), graph, graph.index_of("quantizelinear_1"))

    assert isinstance(found, Match)
    assert found.captures["operand_0"].name == "quantizelinear_0"
    assert found.captures["operand_1"].name == "w0"
    assert found.captures["operand_2"].name == "b0"
    assert found.captures["result"].name == "conv_0"
    assert {"operand_0_scale", "operand_1_scale", "output_scale"} <= set(found.captures)
    assert "operand_2_scale" not in found.captures


def test_an_operator_on_real_numbers_is_no_quantised_one() -> None:
    g = QdqBuilder()
    graph = DataflowGraph(g.model(g.q(g.op("Conv", g.input("x", 1, 2, 4, 4), g.dq(g.int8("w", 2, 2, 1, 1))))))

    assert matched(qdq_pattern("Conv"), graph) == set()
    assert len(matched(quantize_pattern(), graph)) == len(matched(dequantize_pattern(), graph)) == 1


def test_a_result_that_stays_real_is_found_where_it_may() -> None:
    g = QdqBuilder()
    product = g.op("MatMul", g.dq(g.narrow("x", 4, 8)), g.op("Transpose", g.dq(g.int8("w", 6, 8)), perm=[1, 0]))
    graph = DataflowGraph(g.model(g.op("Relu", product)))

    assert matched(qdq_pattern("MatMul"), graph) == set()
    assert matched(qdq_pattern("MatMul", quantizes=None), graph) == {0b1111}
