"""Composites inside composites, three deep: in functions, hashes, partitioned models, and by rules."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir
import pytest

from collage_core.contract import Target
from collage_core.fusion import (
    CandidateKernel,
    CompositeRule,
    FusionRule,
    FusionSpec,
    OpCallByKindRule,
    Partitioning,
    RuleContext,
    RuleOutcome,
    SubGraph,
    SubGraphConfig,
    kernel_function,
)
from collage_core.ir.graph.canonical import Composite
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.passes.apply import apply_partitioning
from collage_core.passes.call_sites import call_sites

Parsed = Callable[..., onnx_ir.Model]
Evaluate = Callable[[onnx_ir.Model, dict[str, Any]], Sequence[Any]]

MODEL = """g (float[2,3] x) => (float[2,3] y) <float[3,3] w = {1,2,3,4,5,6,7,8,9}, float[3] b = {1,2,3}> {
    m = MatMul(x, w) a = Add(m, b) r = Relu(a) e = Neg(r) y = Exp(e) }"""
TARGET = Target(toolchain="mock", fingerprint="mock 1")
SPEC = FusionSpec(name="mock", rule=OpCallByKindRule(), targets=(TARGET,))
X = np.array([[1, -2, 0.5], [-1, 1, -0.25]], np.float32) / 16


@pytest.fixture
def graph(parsed: Parsed) -> DataflowGraph:
    return DataflowGraph(parsed(MODEL))


def nested(graph: DataflowGraph) -> SubGraph:
    """`[c [b [a MatMul Add] Relu] Neg] Exp`."""
    first = SubGraph(graph, 0b00011).labelled("mock.a", {"units": "3"})
    second = first.union(SubGraph(graph, 0b00100)).labelled("mock.b")
    return second.union(SubGraph(graph, 0b01000)).labelled("mock.c").union(SubGraph(graph, 0b10000))


def parts_of(model: onnx_ir.Model) -> dict[str, list[str]]:
    """Operators of each composite, by its label; a composite inside is shown by its label."""
    labels = {each.name: each.metadata_props["collage.composite"] for each in model.functions.values()}
    bodies = {"": list(model.graph), **{labels[each.name]: list(each) for each in model.functions.values()}}
    return {label: [labels.get(node.op_type, node.op_type) for node in body] for label, body in bodies.items()}


NESTED = {
    "": ["mock.c", "Exp"],
    "mock.c": ["mock.b", "Neg"],
    "mock.b": ["mock.a", "Relu"],
    "mock.a": ["MatMul", "Add"],
}


def test_each_is_a_function_that_calls_those_inside_it(graph: DataflowGraph, evaluate: Evaluate) -> None:
    function = kernel_function(nested(graph), "f")

    assert parts_of(function.model) == NESTED
    [inner] = [
        each for each in function.model.functions.values() if each.metadata_props["collage.composite"] == "mock.a"
    ]
    assert inner.metadata_props["collage.composite.units"] == "3"
    onnx.checker.check_model(onnx_ir.to_proto(function.model))
    np.testing.assert_array_equal(evaluate(function.model, {"x": X})[0], evaluate(graph.model, {"x": X})[0])


def test_they_stay_in_a_partitioned_model_that_was_saved(graph: DataflowGraph, tmp_path: Path) -> None:
    model = apply_partitioning(Partitioning(graph, (CandidateKernel(nested(graph), SPEC),)))
    onnx.save(onnx_ir.to_proto(model), tmp_path / "model.onnx")

    [site] = call_sites(onnx_ir.load(tmp_path / "model.onnx"))

    assert parts_of(site.kernel_function().model) == NESTED
    assert site.kernel_function().structural_hash == kernel_function(nested(graph), "f").structural_hash


def test_whoever_differs_in_one_inside_is_another_candidate(graph: DataflowGraph) -> None:
    whole = nested(graph)
    [c] = whole.composites
    [b] = c.parts
    others = [
        dataclasses.replace(whole, composites=parts)
        for parts in (
            (),
            (dataclasses.replace(c, parts=()),),
            (dataclasses.replace(c, parts=(dataclasses.replace(b, parts=()),)),),
            (dataclasses.replace(c, parts=(dataclasses.replace(b, label="mock.d"),)),),
            (b,),
        )
    ]

    everyone = [whole, *others]
    assert len({each.form for each in everyone}) == len(everyone)
    assert len({each.structural_hash for each in everyone}) == len(everyone)
    assert len({kernel_function(each, "f").structural_hash for each in everyone}) == len(everyone)


def test_a_part_that_is_not_inside_its_whole_makes_no_kernel(graph: DataflowGraph) -> None:
    outside = Composite("mock.c", 0b0111, parts=(Composite("mock.b", 0b1100),))
    answer = SubGraph(graph, graph.all_mask, composites=(outside,)).validity(SubGraphConfig())

    assert not answer
    assert "not disjoint subsets of it: mock.b" in answer.reason
    assert nested(graph).validity(SubGraphConfig())


def test_parts_lose_the_views_that_their_whole_loses(parsed: Parsed) -> None:
    graph = DataflowGraph(
        parsed(
            """g (float[2,3] x) => (float[6] y) <int64[1] six = {6}> {
            a = Relu(x) b = Neg(a) y = Reshape(b, six) }"""
        )
    )
    inner = Composite("mock.b", 0b110)

    trimmed = SubGraph(graph, 0b111, composites=(Composite("mock.c", 0b111, parts=(inner,)),)).completed()

    assert trimmed is not None
    assert trimmed.composites == (Composite("mock.c", 0b011, parts=(Composite("mock.b", 0b010),)),)


@dataclasses.dataclass(frozen=True)
class Grown(FusionRule):
    """Another rule's candidates, each with the one node that reads it."""

    rule: FusionRule

    def propose(self, graph: DataflowGraph, context: RuleContext) -> RuleOutcome:
        outcome = self.rule.propose(graph, context)
        both = [(each, each.outputs) for each in outcome.sub_graphs]
        return outcome.with_sub_graphs(each.union(SubGraph(graph, reader)) for each, reader in both if reader)


def test_rules_nest_as_they_are_nested(graph: DataflowGraph) -> None:
    rule: FusionRule = OpCallByKindRule()
    for label in ("mock.a", "mock.b", "mock.c"):
        rule = Grown(CompositeRule(rule, label))

    found = rule.candidates(graph, RuleContext(target=TARGET))

    assert [each.names for each in found] == [graph.names[:4], graph.names[1:]]
    assert parts_of(kernel_function(found[0], "f").model) == {
        "": ["mock.c", "Neg"],
        "mock.c": ["mock.b", "Relu"],
        "mock.b": ["mock.a", "Add"],
        "mock.a": ["MatMul"],
    }
