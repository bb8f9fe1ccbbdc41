"""Which groups are proposed: all that lowering takes of what classic fusion makes, and nothing that it refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from collage.prepare.steps import prepare
from collage_core.candidates.proposals import Proposals, propose, target_rule
from collage_core.contract import Unsupported
from collage_core.fusion import CandidateBounds, OpCallByKindRule, RuleContext, SubGraph, default_rule, kernel_function
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.patterns import PatternTable
from collage_core.registry import Toolchain
from collage_testing import GraphBuilder
from collage_testing.kit import build_context
from collage_triton.errors import Refused
from collage_triton.groups import CompilableRule, why_not
from collage_triton.lower import lower
from collage_triton.nest import nest_of
from collage_triton.patterns import register
from collage_triton.plugin import TritonPlugin, targets
from tests.exports.blocks import CONFIGURATIONS
from tests.exports.reading import FORMS, read

from .emulation import H200, HOST, VERSIONS, compile_source

[EXACT, *_] = targets("3.9.0", [H200])
QUICK = ("bert.torchscript", "gpt2.dynamo_new", "llama.dynamo", "convnext.torchscript", "normalisations_half.dynamo")
EXPORTS = [
    pytest.param(name, form, marks=[] if f"{name}.{form}" in QUICK else [pytest.mark.slow])
    for name in CONFIGURATIONS
    for form in FORMS
]


def proposals(graph: DataflowGraph) -> Proposals:
    rule = target_rule(Toolchain("triton", TritonPlugin(VERSIONS.get)), EXACT, {})
    return propose(rule, graph, CandidateBounds.preset("quick"))


@pytest.mark.parametrize(("name", "form"), EXPORTS)
def test_all_that_is_proposed_of_an_export_lowers_to_source(name: str, form: str, tmp_path: Path) -> None:
    found = proposals(DataflowGraph(prepare(read(name, form))))
    build = build_context(tmp_path, workspace_limit_bytes=0, host=HOST)

    different = {each.sub_graph.structural_hash: each.sub_graph for each in found.candidates}
    for sub_graph in different.values():
        answer = lower(EXACT, kernel_function(sub_graph, "group"), build, "3.9.0", compile_source)
        assert not isinstance(answer, Unsupported), f"{', '.join(sub_graph.names)}: {answer.reason}"
        [artifact] = answer
        assert artifact.files or not artifact.metadata["launches"]
    assert len(different) > 5


def lowers(sub_graph: SubGraph) -> str:
    """Why lowering refuses the extracted function; empty if it does not."""
    try:
        nest_of(kernel_function(sub_graph, "group"))
    except Refused as refusal:
        return refusal.reason
    return ""


def refusable() -> DataflowGraph:
    """Groups that lowering refuses, beside some that it takes."""
    g = GraphBuilder()
    product = g.op("MatMul", g.input("x", 1, 8), g.weight("w", 8, 4))
    repeated = g.op("Relu", g.op("Expand", product, g.ints(6, 4)))
    rows = g.op("Softmax", g.input("z", 64, 300))
    again = g.op("Add", g.op("Reshape", rows, g.ints(300, 64)), g.weight("c", 64))
    return DataflowGraph(g.model(repeated, again))


def test_a_group_is_judged_in_place_as_its_function_is() -> None:
    table = PatternTable()
    register(table)
    groups = default_rule(table, EXACT).candidates(refusable(), RuleContext(target=EXACT))

    judged = {group: why_not(group) for group in groups}

    assert judged == {group: lowers(group) for group in groups}
    assert sorted(group.names for group, reason in judged.items() if reason) == [
        ("matmul_0", "expand_0"),
        ("matmul_0", "expand_0", "relu_0"),
        ("softmax_0", "reshape_0", "add_0"),
    ]


def test_groups_without_a_loop_nest_are_left_out_and_the_reasons_kept() -> None:
    found = proposals(refusable())

    assert not [reason for each in found.candidates if (reason := lowers(each.sub_graph))]
    assert all("groups that are no one kernel of triton@cuda:0: " in line for line in found.left_out)
    reasons = " ".join(found.left_out)
    assert "2 groups that are no one kernel of triton@cuda:0: what follows MatMul has other elements" in reasons
    assert "reduce each row of Softmax 300 times over" in reasons
    assert found.refusals == {}  # each node alone is a kernel


def test_a_node_that_alone_is_no_kernel_is_refused_with_the_reason() -> None:
    g = GraphBuilder()
    graph = DataflowGraph(g.model(g.op("Exp", g.op("LRN", g.op("Relu", g.input("x", 1, 2, 8, 8)), size=3))))

    outcome = CompilableRule(OpCallByKindRule()).propose(graph, RuleContext(target=EXACT))

    assert [each.names for each in outcome.sub_graphs] == [("relu_0",), ("exp_0",)]
    assert dict(outcome.refusals) == {1: "it has no loop nest for LRN"}
    assert outcome.left_out == ()


def test_a_norm_written_in_parts_is_proposed_whole() -> None:
    g = GraphBuilder()
    x = g.op("Add", g.input("x", 4, 16), g.input("z", 4, 16))
    apart = g.op("Sub", x, g.op("ReduceMean", x, g.ints(-1)))
    variance = g.op("ReduceMean", g.op("Mul", apart, apart), g.ints(-1))
    normal = g.op("Div", apart, g.op("Sqrt", g.op("Add", variance, g.constant("e", np.float32(1e-5)))))
    graph = DataflowGraph(g.model(normal))

    groups = {frozenset(each.sub_graph.names) for each in proposals(graph).candidates}

    assert frozenset(graph.names) - {"add_0"} in groups
