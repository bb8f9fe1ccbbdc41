from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping

import numpy as np
import onnx
import onnx_ir
import pytest

from collage_core.contract import Joins, Supported, Target, Unsupported
from collage_core.fusion import (
    CandidateBounds,
    CombineByPrimitivesRule,
    CompositeRule,
    DFPatternRule,
    OnlyValidRule,
    OpCallByKindRule,
    OpPredicateRule,
    RegionsRule,
    RuleContext,
    RuleOutcome,
    SubGraph,
    SubGraphConfig,
    UnionRule,
    default_rule,
)
from collage_core.fusion.closure import Closure
from collage_core.fusion.rule import RuleCache
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits
from collage_core.patterns import FusionPattern, Match, NodeContext, PatternTable, is_constant, is_op, wildcard

Parsed = Callable[..., onnx_ir.Model]

# The example of the seed design: two conv-add-relu-pool blocks and a dense layer. Weights are declared as inputs,
# because the text form cannot leave out the data of an initializer.
MNIST = """g (float[1,1,28,28] x, float[8,1,5,5] w1, float[8,1,1] b1, float[16,8,5,5] w2, float[16,1,1] b2,
   float[256,10] w3, float[1,10] b3) => (float[1,10] y) <int64[2] flat = {1, 256}> {
 c1 = Conv<auto_pad="SAME_UPPER">(x, w1)  a1 = Add(c1, b1)  r1 = Relu(a1)
 p1 = MaxPool<kernel_shape=[2,2], strides=[2,2]>(r1)
 c2 = Conv<auto_pad="SAME_UPPER">(p1, w2)  a2 = Add(c2, b2)  r2 = Relu(a2)
 p2 = MaxPool<kernel_shape=[3,3], strides=[3,3]>(r2)
 f = Reshape(p2, flat)  d = MatMul(f, w3)  y = Add(d, b3) }"""


@pytest.fixture
def mnist(parsed: Parsed) -> DataflowGraph:
    model = parsed(MNIST)
    for value in list(model.graph.inputs)[1:]:
        model.graph.inputs.remove(value)
        assert value.shape is not None
        value.const_value = onnx_ir.tensor(np.ones(value.shape.numpy(), np.float32))
        model.graph.initializers.add(value)
    return DataflowGraph(model)


def context(joins: Joins = Joins.NONE, refusals: Mapping[int, str] | None = None, **bounds: int) -> RuleContext:
    return RuleContext(
        target=Target(toolchain="mock", fingerprint="mock 1", joins=joins),
        refusals=refusals or {},
        bounds=CandidateBounds(**bounds),
    )


def operators(outcome: RuleOutcome) -> set[str]:
    return {
        f"{sub_graph.label}:" * bool(sub_graph.label)
        + "+".join(sub_graph.graph.nodes[index].op_type for index in iterate_bits(sub_graph.nodes))
        for sub_graph in outcome.sub_graphs
    }


def test_a_pattern_gives_one_candidate_per_match_and_tells_refusals(mnist: DataflowGraph) -> None:
    def check(match: Match) -> Supported | Unsupported:
        return Unsupported("k=8 is not a multiple of 16") if match.root == 0 else Supported()

    rule = DFPatternRule(FusionPattern(name="mock.conv", pattern=is_op("Conv")(wildcard(), is_constant()), check=check))

    outcome = rule.propose(mnist, context())

    assert [sub_graph.names for sub_graph in outcome.sub_graphs] == [("Conv_4",)]
    assert outcome.refusals == {0: "mock.conv: k=8 is not a multiple of 16"}


def test_mnist_seed_rules(mnist: DataflowGraph) -> None:
    cudnn, cutlass, tensorrt, native = (PatternTable() for _ in range(4))
    cudnn.pattern("cudnn.conv2d", is_op("Conv")(wildcard(), wildcard()))
    cutlass.pattern("cutlass.dense_bias", is_op("Add")(is_op("MatMul")(wildcard(), is_constant()), is_constant()))
    for op in ("Conv", "Add", "Relu"):
        tensorrt.predicate(op, lambda node: Supported())

    def proposed(table: PatternTable, joins: Joins) -> set[str]:
        chosen = context(joins)
        return operators(default_rule(table, chosen.target).propose(mnist, chosen))

    assert proposed(cudnn, Joins.NONE) == {"cudnn.conv2d:Conv"}
    assert proposed(cutlass, Joins.NONE) == {"cutlass.dense_bias:MatMul+Add"}
    assert proposed(tensorrt, Joins.NATIVE) == {
        "Conv",
        "Add",
        "Relu",
        "Conv+Add",
        "Add+Relu",
        "Conv+Add+Relu",
    }
    assert proposed(native, Joins.NATIVE) == {
        "Conv",
        "Add",
        "Relu",
        "MaxPool",
        "MatMul",
        "Conv+Add",
        "Add+Relu",
        "Conv+Add+Relu",
        "MatMul+Add",
    }


def test_patterns_joined_natively_keep_their_parts(mnist: DataflowGraph) -> None:
    table = PatternTable()
    table.pattern("mock.conv", is_op("Conv"))
    table.pattern("mock.bias", is_op("Add"))

    outcome = default_rule(table, context(Joins.NATIVE).target).propose(mnist, context(Joins.NATIVE))

    joined = [sub_graph for sub_graph in outcome.sub_graphs if sub_graph.nodes == 0b11]
    assert [[part.label for part in sub_graph.composites] for sub_graph in joined] == [["mock.conv", "mock.bias"]]


def test_refused_nodes_are_inside_nothing_and_keep_the_reason(mnist: DataflowGraph) -> None:
    table = PatternTable()
    table.predicate("*", lambda node: Supported())
    chosen = context(Joins.ANY, {1: "the query says no"})

    outcome = default_rule(table, chosen.target).propose(mnist, chosen)

    assert outcome.refusals == {1: "the query says no"}
    assert not any(sub_graph.nodes & 0b10 for sub_graph in outcome.sub_graphs)
    sizes = sorted(sub_graph.nodes.bit_count() for sub_graph in outcome.sub_graphs)
    assert sizes[-1] == 9  # all after the refused one, in one region


def test_a_refused_view_is_a_barrier(mnist: DataflowGraph) -> None:
    def no_reshape(node: NodeContext) -> Supported | Unsupported:
        return Unsupported("no Reshape") if node.op_type == "Reshape" else Supported()

    table = PatternTable()
    table.predicate("*", no_reshape)
    chosen = context(Joins.ANY)

    outcome = default_rule(table, chosen.target).propose(mnist, chosen)

    reshape = mnist.index_of("Reshape_8")
    assert outcome.refusals == {reshape: "no Reshape"}
    assert not any(sub_graph.nodes >> reshape & 1 for sub_graph in outcome.sub_graphs)
    assert {sub_graph.nodes for sub_graph in outcome.sub_graphs} >= {(1 << reshape) - 1}


def test_joins_any_offers_singles_fused_groups_regions_and_the_whole(mnist: DataflowGraph) -> None:
    table = PatternTable()
    table.predicate("*", lambda node: Supported())
    chosen = context(Joins.ANY, segments=3)

    outcome = default_rule(table, chosen.target).propose(mnist, chosen)

    masks = {sub_graph.nodes for sub_graph in outcome.sub_graphs}
    assert mnist.completed(mnist.all_mask) in masks
    assert 0b111 in masks
    assert all(1 << index in masks for index in range(8))
    assert len(masks) == len(outcome.sub_graphs)


def test_regions_follow_the_given_cuts(mnist: DataflowGraph) -> None:
    table = PatternTable()
    table.predicate("*", lambda node: Supported())
    base = OpPredicateRule(table)
    chosen = RuleContext(target=context(Joins.ANY).target, cut_positions=(4, 8))

    regions = RegionsRule(base).candidates(mnist, chosen)

    assert [sub_graph.names for sub_graph in regions if sub_graph.depth <= 4] == [
        ("Conv_0", "Add_1", "Relu_2", "MaxPool_3"),
        ("Conv_4", "Add_5", "Relu_6", "MaxPool_7"),
        ("MatMul_9", "Add_10"),
    ]
    assert len(regions) == 6


def test_a_closure_is_computed_once_whatever_the_cuts(mnist: DataflowGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    table = PatternTable()
    table.predicate("*", lambda node: Supported())
    target, other = context(Joins.ANY).target, dataclasses.replace(context(Joins.ANY).target, max_depth=2)
    asked = [(target, (4, 8)), (target, (2, 5)), (other, (4, 8)), (target, (4, 8))]

    def found(cache: RuleCache | None) -> list[tuple[SubGraph, ...]]:
        contexts = [
            RuleContext(target=each, cut_positions=cuts, cache=RuleCache() if cache is None else cache)
            for each, cuts in asked
        ]
        return [default_rule(table, each.target).propose(mnist, each).sub_graphs for each in contexts]

    alone = found(None)
    run, runs = Closure.run, list[Closure]()

    def counted(self: Closure, start: Iterable[SubGraph], limit: int) -> int:
        runs.append(self)
        return run(self, start, limit)

    monkeypatch.setattr(Closure, "run", counted)

    assert found(RuleCache()) == alone
    assert len(runs) == 2, "one for each depth"
    assert alone[0] != alone[1]
    assert alone[0] != alone[2]


def test_too_many_cuts_are_reported(mnist: DataflowGraph) -> None:
    chosen = RuleContext(target=context().target, cut_positions=(1, 2, 3), bounds=CandidateBounds(segments=2))

    outcome = RegionsRule(OpCallByKindRule()).propose(mnist, chosen)

    assert outcome.left_out == ("2 cut positions beyond the first 1",)
    assert len(outcome.sub_graphs) == 3


def test_opaque_operators_are_left_out_of_native_fusion_with_the_reason(parsed: Parsed) -> None:
    graph = DataflowGraph(
        parsed("g (float[2,9] x) => (float[2,4] y) <int64[1] k = {4}> { a = Relu(x) b, i = TopK(a, k) y = Neg(b) }")
    )

    outcome = OpCallByKindRule().propose(graph, context())

    assert operators(outcome) == {"Relu", "Neg"}
    assert outcome.refusals == {1: "TopK is opaque"}


def test_limits_of_the_target_are_kept(parsed: Parsed) -> None:
    graph = DataflowGraph(parsed("g (float[2] x, float[2] z) => (float[2] y) { a = Add(x, z) b = Neg(a) y = Exp(b) }"))
    target = Target(toolchain="mock", fingerprint="mock 1", joins=Joins.ANY, max_depth=2, max_inputs=1)
    table = PatternTable()
    table.predicate("*", lambda node: Supported())

    outcome = default_rule(table, target).propose(graph, RuleContext(target=target))

    assert {sub_graph.names for sub_graph in outcome.sub_graphs} == {("Neg_1",), ("Exp_2",), ("Neg_1", "Exp_2")}
    assert outcome.refusals == {0: "2 inputs, at most 1 are allowed"}


def test_a_marked_call_goes_to_its_own_toolchain_alone() -> None:
    proto = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21, "mine" : 1]>
        g (float[2] x) => (float[2] y) <float[2] a, float[2] b> { a = Relu(x) b = mine.f(a) y = Exp(b) }
        <domain: "mine", opset_import: ["" : 21]> f (p) => (q) { q = Neg(p) }"""
    )
    model = onnx_ir.from_proto(proto)
    next(iter(model.functions.values())).metadata_props.update({"collage.primitive": "1", "collage.compiler": "mock"})
    graph = DataflowGraph(model)
    table = PatternTable()
    table.predicate("*", lambda node: Supported())
    chosen = context(Joins.ANY)
    other = RuleContext(target=Target(toolchain="other", fingerprint="1", joins=Joins.ANY))

    mine = default_rule(table, chosen.target).propose(graph, chosen)
    theirs = default_rule(table, other.target).propose(graph, other)

    assert [s.nodes for s in mine.sub_graphs if s.nodes >> 1 & 1] == [0b010]
    assert theirs.refusals == {1: "the model gives it to mock"}
    assert {s.nodes for s in theirs.sub_graphs} == {0b001, 0b100}


def test_unions_keep_each_sub_graph_once_and_only_reasons_nobody_disproves(mnist: DataflowGraph) -> None:
    conv = CompositeRule(DFPatternRule(FusionPattern(name="c", pattern=is_op("Conv"))), "c")
    refusing = DFPatternRule(
        FusionPattern(name="n", pattern=is_op("Conv") | is_op("MatMul"), check=lambda match: Unsupported("never"))
    )

    outcome = UnionRule((conv, conv, refusing)).propose(mnist, context())

    assert len(outcome.sub_graphs) == 2
    assert outcome.refusals == {9: "n: never"}


def test_a_reason_that_says_more_than_that_a_pattern_looks_otherwise_is_told(mnist: DataflowGraph) -> None:
    of_relu = DFPatternRule(FusionPattern(name="other", pattern=is_op("Add")(is_op("Relu")(wildcard()), wildcard())))
    checked = DFPatternRule(
        FusionPattern(
            name="same",
            pattern=is_op("Add")(is_op("MatMul"), wildcard()),
            check=lambda match: Unsupported("ten columns are too few"),
        )
    )

    within = UnionRule((UnionRule((of_relu, of_relu)), checked))
    outcome = OnlyValidRule(within, SubGraphConfig()).propose(mnist, context())

    assert outcome.refusals[10] == "same: ten columns are too few"
    assert outcome.refusals[1].startswith("other: ")  # nothing better is known of the others


def test_the_bound_on_the_closure_is_reported(mnist: DataflowGraph) -> None:
    outcome = CombineByPrimitivesRule(OpCallByKindRule()).propose(mnist, context(max_candidates=12))

    assert len(outcome.sub_graphs) == 12
    assert "beyond the first 12" in outcome.left_out[0]


def test_filters_only_keep_what_can_be_a_kernel(mnist: DataflowGraph) -> None:
    rule = OnlyValidRule(CombineByPrimitivesRule(OpCallByKindRule()), SubGraphConfig(max_depth=1))

    assert all(sub_graph.depth == 1 for sub_graph in rule.candidates(mnist, context()))
