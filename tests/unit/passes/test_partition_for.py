from __future__ import annotations

from collections.abc import Callable

import onnx_ir
import pytest

from collage_core.contract import Joins, Supported, Target, Unsupported
from collage_core.errors import PartitioningError
from collage_core.fusion import FusionSpec, OpCallByKindRule, RuleContext, default_rule
from collage_core.ir.dataflow import DataflowGraph
from collage_core.passes.partition_for import partition_for
from collage_core.patterns import NodeContext, PatternTable

Parsed = Callable[..., onnx_ir.Model]

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
