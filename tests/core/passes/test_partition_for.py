from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir
import pytest

from collage_core.contract import Joins, Supported, Target, Unsupported
from collage_core.errors import PartitioningError
from collage_core.fusion import FusionSpec, OpCallByKindRule, RuleContext, default_rule
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.passes.fuse_ops import FuseOps
from collage_core.passes.partition_for import PartitionFor, partition_for
from collage_core.patterns import NodeContext, PatternTable

Parsed = Callable[..., onnx_ir.Model]
Evaluate = Callable[..., list[Any]]

TEXT = """g (float[2] x) => (float[2] y) { a = Relu(x) b = Exp(a) c = Erf(b) d = Neg(c) y = Abs(d) }"""
FALLBACK = FusionSpec(
    name="fallback", rule=OpCallByKindRule(), targets=(Target(toolchain="fallback", fingerprint="1"),)
)


def no_erf(node: NodeContext) -> Supported | Unsupported:
    return Unsupported("no Erf") if node.op_type == "Erf" else Supported()


def kernels(parsed: Parsed, joins: Joins, fallback: FusionSpec | None = FALLBACK) -> list[tuple[str, tuple[str, ...]]]:
    graph = DataflowGraph(parsed(TEXT))
    target = Target(toolchain="mock", fingerprint="mock 1", joins=joins)
    table = PatternTable()
    table.predicate("*", no_erf)
    rule = default_rule(table, target)
    context = RuleContext(target=target)
    spec = FusionSpec(name="mock", rule=rule, targets=(target,))
    found = partition_for(graph, spec, rule.propose(graph, context), context, fallback=fallback)
    return sorted((kernel.target.toolchain, kernel.sub_graph.names) for kernel in found.kernels)


def test_a_graph_compiler_gets_the_largest_regions(parsed: Parsed) -> None:
    assert kernels(parsed, Joins.ANY) == [
        ("fallback", ("Erf_2",)),
        ("mock", ("Neg_3", "Abs_4")),
        ("mock", ("Relu_0", "Exp_1")),
    ]


def test_a_library_of_single_kernels_gets_them_one_by_one(parsed: Parsed) -> None:
    assert [toolchain for toolchain, _ in kernels(parsed, Joins.NONE)] == ["fallback", *["mock"] * 4]


def test_without_a_fallback_what_is_left_is_named(parsed: Parsed) -> None:
    with pytest.raises(PartitioningError, match="no kernel holds 'Erf_2'"):
        kernels(parsed, Joins.ANY, fallback=None)


def marked(model: onnx_ir.Model) -> list[tuple[str, str]]:
    """By node: its operator, or who owns it if it is a call."""
    return [
        (str(node.name), model.functions[node.op_identifier()].metadata_props["collage.target"])
        for node in model.graph
        if node.op_identifier() in model.functions
    ]


def a_pass(joins: Joins, name: str = "mock", **options: Any) -> PartitionFor:
    target = Target(toolchain=name, fingerprint="1", joins=joins)
    table = PatternTable()
    table.predicate("*", no_erf)
    return PartitionFor(FusionSpec(name=name, rule=default_rule(table, target), targets=(target,)), **options)


def test_as_a_pass_it_marks_what_is_taken_and_leaves_the_rest_as_it_is(parsed: Parsed, evaluate: Evaluate) -> None:
    model = parsed(TEXT)
    feeds = {"x": np.array([0.5, -1], np.float32)}
    expected = evaluate(model, feeds)
    mine = a_pass(Joins.ANY)

    result = mine(model)

    assert result.modified
    assert [kernel.sub_graph.names for kernel in mine.kernels] == [("Relu_0", "Exp_1"), ("Neg_3", "Abs_4")]
    assert mine.refusals == {"Erf_2": "no Erf"}
    assert marked(model) == [("Exp_1", "mock"), ("Abs_4", "mock")]
    assert [node.op_type for node in model.graph][1] == "Erf"
    np.testing.assert_array_equal(evaluate(model, feeds)[0], expected[0])
    assert not mine(model).modified


def test_a_second_toolchain_gets_what_the_first_refused_and_nothing_of_what_it_has(parsed: Parsed) -> None:
    model = parsed(TEXT)
    a_pass(Joins.ANY, query=lambda graph: {graph.index_of("Exp_1"): "not here"})(model)
    taken = marked(model)

    a_pass(Joins.ANY, "other")(model)

    assert taken == [("Relu_0", "mock"), ("Abs_4", "mock")]
    assert marked(model) == [("Relu_0", "mock"), ("Exp_1", "other"), ("Abs_4", "mock")]


def test_a_fusion_nobody_owns_becomes_the_targets(parsed: Parsed) -> None:
    model = parsed(TEXT)
    FuseOps()(model)  # one group, with the operator the target does not take
    whole = parsed("g (float[2] x) => (float[2] y) { a = Relu(x) b = Exp(a) y = Abs(b) }")
    FuseOps()(whole)

    refused = a_pass(Joins.NONE)
    assert not refused(model).modified
    assert refused.refusals == {"Abs_4": "inside of it, Erf: no Erf"}
    assert a_pass(Joins.NONE)(whole).modified
    assert marked(whole) == [("Abs_2", "mock")]
    assert not a_pass(Joins.NONE)(whole).modified
