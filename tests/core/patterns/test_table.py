from __future__ import annotations

import dataclasses
from collections.abc import Callable

import onnx_ir
import pytest

from collage_core.contract import Supported, Unsupported
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.patterns import FusionPattern, Match, Matcher, NodeContext, Pattern, PatternTable, is_op

Parsed = Callable[..., onnx_ir.Model]


def test_an_operators_own_predicate_goes_before_the_general_one(parsed: Parsed) -> None:
    table = PatternTable()
    table.predicate("*", lambda node: Supported())
    table.predicate("Relu", lambda node: Unsupported(f"{node.name}: not Relu"))
    graph = DataflowGraph(parsed("g (float[2] x) => (float[2] y) { a = Exp(x) y = Relu(a) }"))

    assert table.supports(graph, 0)
    assert table.supports(graph, 1) == Unsupported("Relu_1: not Relu")


def test_without_a_predicate_the_refusal_names_the_operator(parsed: Parsed) -> None:
    graph = DataflowGraph(parsed("g (float[2] x) => (float[2] y) { y = Relu(x) }"))

    assert PatternTable().supports(graph, 0) == Unsupported("no predicate takes Relu")


def test_names_are_unique() -> None:
    table = PatternTable()
    table.pattern("a", is_op("Relu"))
    table.predicate("Relu", lambda node: Supported())

    with pytest.raises(ValueError, match="unique"):
        table.pattern("a", is_op("Exp"))
    with pytest.raises(ValueError, match="already"):
        table.predicate("Relu", lambda node: Supported())


def test_priority_goes_before_the_order_of_adding() -> None:
    table = PatternTable()
    for name, priority in (("a", 0), ("b", 1), ("c", 0), ("d", 1)):
        table.pattern(name, is_op("Relu"), priority=priority)

    assert [entry.name for entry in table.patterns] == ["b", "d", "a", "c"]


def test_a_node_context_answers_what_predicates_ask(parsed: Parsed) -> None:
    graph = DataflowGraph(
        parsed(
            """g (float[1,2,4,4] x) => (float[1,2,2,2] y) <float[2,1,3,3] w = {1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1}> {
            y = Conv<group=2, kernel_shape=[3,3], auto_pad="VALID">(x, w) }"""
        )
    )
    node = NodeContext(graph, 0)

    assert (node.op_type, node.domain, node.version, node.kind.name) == ("Conv", "", 21, "OUT_ELEMENTWISE_FUSABLE")
    assert node.attribute("group") == 2
    assert node.attribute("kernel_shape") == (3, 3)
    assert node.attribute("auto_pad") == "VALID"
    assert node.attribute("dilations", (1, 1)) == (1, 1)
    assert [spec.shape for spec in node.inputs if spec] == [(1, 2, 4, 4), (2, 1, 3, 3)]
    assert node.outputs[0].shape == (1, 2, 2, 2)
    assert node.constant(0) is None
    weight = node.constant(1)
    assert weight is not None
    assert weight.shape == (2, 1, 3, 3)
    assert node.constant(7) is None
    assert not node.has_bodies


def test_an_entry_with_another_check_matches_by_what_is_known_of_the_pattern(
    parsed: Parsed, monkeypatch: pytest.MonkeyPatch
) -> None:
    analysed = []

    class Counted(Matcher):
        def __init__(self, pattern: Pattern) -> None:
            analysed.append(pattern)
            super().__init__(pattern)

    monkeypatch.setattr("collage_core.patterns.table.Matcher", Counted)
    graph = DataflowGraph(parsed("g (float[2] x) => (float[2] y) { a = Exp(x) y = Relu(a) }"))
    relu, exp = is_op("Relu"), is_op("Exp")
    entry = FusionPattern(name="mock.relu", pattern=relu)

    entries = [entry, *(dataclasses.replace(entry, check=lambda match: Supported()) for _ in range(2))]
    found = [isinstance(each.match(graph, 1), Match) for each in entries]

    assert found == [True] * 3
    assert analysed == [relu]
    assert isinstance(dataclasses.replace(entry, pattern=exp).match(graph, 0), Match)
    assert analysed == [relu, exp]
