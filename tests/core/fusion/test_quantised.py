"""Quantised operators stay whole, whoever proposes what."""

from __future__ import annotations

import random
from collections.abc import Sequence

import onnx
import onnx_ir
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from collage_core.contract import Joins, Supported, Target, Unsupported
from collage_core.fusion import (
    CandidateKernel,
    FusionRule,
    FusionSpec,
    OpCallByKindRule,
    Partitioning,
    RegionsRule,
    RuleContext,
    RuleOutcome,
    SubGraph,
    cut_positions,
    default_rule,
    quantised_groups,
    with_whole_groups,
)
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.passes.partition_for import partition_for
from collage_core.patterns import NodeContext, PatternTable, is_op, wildcard
from collage_testing import MockToolchain, partition
from tests.core.fusion.qdq import QdqBuilder, brute_groups, random_qdq_model


def named(graph: DataflowGraph) -> list[str]:
    """Operators of each group, in the graph's order."""
    found = []
    for group in quantised_groups(graph):
        nodes = [graph.nodes[index].op_type for index in range(len(graph)) if group >> index & 1]
        found.append(" ".join(nodes).replace("DequantizeLinear", "DQ").replace("QuantizeLinear", "Q"))
    return found


def taking(joins: Joins, *refused: str, name: str = "mock") -> tuple[FusionRule, Target]:
    """The default rule of a target that takes every operator but these."""

    def takes(node: NodeContext) -> Supported | Unsupported:
        return Unsupported(f"no {node.op_type}") if node.op_type in refused else Supported()

    table = PatternTable()
    table.predicate("*", takes)
    target = Target(toolchain=name, fingerprint="1", joins=joins)
    return default_rule(table, target), target


def conv(g: QdqBuilder, x: onnx_ir.Value, channels: int = 2) -> onnx_ir.Value:
    """A convolution of weights with a scale for each channel."""
    number = g._numbered("layer")
    weight = g.op(
        "DequantizeLinear",
        g.int8(f"{number}_w", channels, channels, 1, 1),
        g.weight(f"{number}_scales", channels),
        g.int8(f"{number}_zeros", channels),
        axis=0,
    )
    return g.op("Conv", g.dq(x), weight, g.weight(f"{number}_b", channels))


# What a group is


def test_a_convolution_its_activation_and_all_their_conversions_are_one() -> None:
    g = QdqBuilder()
    y = g.q(g.op("Relu", conv(g, g.narrow("x", 1, 2, 4, 4))))

    assert named(DataflowGraph(g.model(y))) == ["DQ DQ Conv Relu Q"]


def test_kernels_end_between_a_quantizer_and_the_next_dequantizer() -> None:
    g = QdqBuilder()
    x = g.q(g.input("x", 1, 2, 4, 4))
    x = g.q(conv(g, x))
    y = g.dq(g.q(conv(g, x)))

    graph = DataflowGraph(g.model(y))

    assert named(graph) == ["DQ DQ Conv Q", "DQ DQ Conv Q"]  # the first quantizer and the last dequantizer are alone
    assert cut_positions(graph, 9) == (1, 5, 9)


def test_what_feeds_two_operators_is_between_both_and_neither() -> None:
    g = QdqBuilder()
    x = g.q(g.input("x", 1, 2, 4, 4))
    main = g.q(g.op("Relu", conv(g, x)))
    y = g.q(g.op("Add", g.dq(x), g.dq(main)))

    graph = DataflowGraph(g.model(y))

    assert named(graph) == ["DQ DQ Conv Relu Q", "DQ DQ Add Q"]
    assert cut_positions(graph, 9) == (1, 6)  # the skip is converted beside the sum, so the block can be cut


def sharing_a_dequantizer() -> onnx_ir.Model:
    """A convolution and the sum beside it read one dequantizer's value."""
    g = QdqBuilder()
    shared = g.dq(g.narrow("x", 1, 2, 4, 4))
    main = g.q(g.op("Conv", shared, g.dq(g.int8("w", 2, 2, 1, 1))))
    return g.model(g.q(g.op("Add", shared, g.dq(main))))


def test_a_dequantizer_two_operators_share_ties_them() -> None:
    graph = DataflowGraph(sharing_a_dequantizer())

    assert named(graph) == ["DQ DQ Conv Q DQ Add Q"]  # as one, or they would wait for each other


@pytest.mark.parametrize(
    "operator", ["MaxPool", "Reshape", "Transpose", "Concat", "GlobalAveragePool", "Sigmoid", "Softmax"]
)
def test_whatever_stands_between_the_conversions_belongs_to_them(operator: str) -> None:
    g = QdqBuilder()
    x = g.dq(g.narrow("x", 1, 2, 4, 4))
    match operator:
        case "MaxPool":
            y = g.op("MaxPool", x, kernel_shape=[2, 2])
        case "Reshape":
            y = g.op("Reshape", x, g.ints(1, 32))
        case "Concat":
            y = g.op("Concat", x, g.dq(g.narrow("z", 1, 2, 4, 4)), axis=1)
        case _:
            y = g.op(operator, x)

    [group] = named(DataflowGraph(g.model(g.q(y))))

    assert group == {"Reshape": "DQ Q", "Concat": "DQ DQ Concat Q"}.get(operator, f"DQ {operator} Q")  # a view is free


def test_element_wise_work_of_several_nodes_is_inside() -> None:
    g = QdqBuilder()
    wide = conv(g, g.narrow("x", 1, 2, 4, 4))
    y = g.q(g.op("Mul", wide, g.op("Sigmoid", wide)))

    assert named(DataflowGraph(g.model(y))) == ["DQ DQ Conv Sigmoid Mul Q"]


def test_a_result_that_is_wanted_in_float_ends_the_group() -> None:
    for softmax in (True, False):
        g = QdqBuilder()
        wide = conv(g, g.narrow("x", 1, 2, 4, 4))
        y = g.op("Softmax", wide) if softmax else wide

        assert named(DataflowGraph(g.model(g.q(wide), y))) == ["DQ DQ Conv"]


def test_float_work_between_quantised_operators_is_nobodys() -> None:
    g = QdqBuilder()
    wide = g.op("Softmax", conv(g, g.narrow("x", 1, 2, 4, 4)))
    y = conv(g, g.q(wide))

    assert named(DataflowGraph(g.model(y))) == ["DQ DQ Conv", "DQ DQ Conv"]


def test_weights_stay_with_what_reads_them_however_they_are_made() -> None:
    g = QdqBuilder()
    weight = g.op("Transpose", g.dq(g.q(g.weight("w", 4, 4))), perm=[1, 0])
    y = g.op("MatMul", g.input("x", 2, 4), weight)

    assert named(DataflowGraph(g.model(y))) == ["Q DQ Transpose MatMul"]


def test_the_quantizer_of_an_input_and_the_dequantizer_of_an_output_are_alone() -> None:
    g = QdqBuilder()

    assert named(DataflowGraph(g.model(g.dq(g.q(g.input("x", 4)))))) == []


def test_what_calls_a_marked_kernel_stays_a_kernel_of_its_own() -> None:
    proto = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21, "mine" : 1]>
        g (int8[2] x) => (int8[2] y) <float s = {0.5}, int8 z = {0}>
        { a = DequantizeLinear(x, s, z) b = mine.f(a) y = QuantizeLinear(b, s, z) }
        <domain: "mine", opset_import: ["" : 21]> f (p) => (q) { q = Neg(p) }"""
    )
    model = onnx_ir.from_proto(proto)
    next(iter(model.functions.values())).metadata_props["collage.primitive"] = "1"

    assert named(DataflowGraph(model)) == []


@pytest.mark.guards(
    "a quantised model in the QDQ form",
    "no kernel holds a part of a quantised operator (the DequantizeLinear on what it reads, the work, the"
    " QuantizeLinear); cuts fall between them; only few bits go from kernel to kernel",
    area="input",
)
@given(st.randoms(use_true_random=False), st.integers(1, 14))
@settings(max_examples=60, deadline=None)
def test_groups_are_what_walking_every_path_finds(rng: random.Random, operators: int) -> None:
    graph = DataflowGraph(random_qdq_model(rng, operators))

    groups = quantised_groups(graph)

    assert set(groups) == brute_groups(graph)
    assert all(graph.is_convex(graph.completed(group)) for group in groups)
    _run_one_after_the_other(graph, groups)


def _run_one_after_the_other(graph: DataflowGraph, groups: Sequence[int]) -> None:
    """Raises `PartitioningError` if they, and the other nodes one by one, cannot."""
    grouped = sum(groups)
    alone = [1 << index for index in range(len(graph)) if graph.needs_kernel & ~grouped & 1 << index]
    spec = FusionSpec(name="m", rule=OpCallByKindRule(), targets=(Target(toolchain="m", fingerprint="m 1"),))
    kernels = (SubGraph(graph, graph.completed(nodes)) for nodes in (*groups, *alone))
    Partitioning(graph, tuple(CandidateKernel(kernel, spec) for kernel in kernels))


# Who honours it


def is_whole(groups: set[int], nodes: int) -> bool:
    return not any(group & nodes and group & ~nodes for group in groups)


@pytest.mark.guards("a quantised model in the QDQ form")
@given(st.randoms(use_true_random=False), st.integers(1, 14), st.sampled_from(list(Joins)))
@settings(max_examples=40, deadline=None)
def test_no_candidate_ever_splits_a_group(rng: random.Random, operators: int, joins: Joins) -> None:
    graph = DataflowGraph(random_qdq_model(rng, operators))
    groups = brute_groups(graph)
    refused = rng.sample(["Add", "Mul", "Relu", "Softmax", "Reshape", "MatMul"], k=rng.randrange(3))
    rule, target = taking(joins, *refused)
    anywhere = tuple(rng.randrange(1, len(graph) + 1) for _ in range(3))
    context = RuleContext(target=target, cut_positions=rng.choice([None, anywhere]))

    outcome = rule.propose(graph, context)

    assert all(is_whole(groups, sub_graph.nodes) for sub_graph in outcome.sub_graphs)
    assert all(sub_graph.is_convex for sub_graph in outcome.sub_graphs)
    # every node is in a candidate, or says why it is in none
    takes = [node.op_type not in refused for node in graph.nodes]
    for index in range(len(graph)):
        unit = next((group for group in groups if group >> index & 1), 1 << index)
        inside = graph.completed(unit)
        whole = all(takes[i] for i in range(len(graph)) if inside >> i & 1)
        if not graph.is_host(index):
            assert bool(outcome.covered >> index & 1) == (whole and (joins is not Joins.NONE or unit == 1 << index))
            assert outcome.covered >> index & 1 or index in outcome.refusals


@pytest.mark.guards(
    "a plugin's own rule proposes a part of a quantised operator",
    "it grows to the whole one if its other proposals hold the rest; of a target that joins nothing it is"
    " refused, with the reason",
    area="input",
)
@given(st.randoms(use_true_random=False), st.integers(1, 14), st.sampled_from(list(Joins)))
@settings(max_examples=30, deadline=None)
def test_what_a_plugin_proposes_itself_grows_or_is_refused(rng: random.Random, operators: int, joins: Joins) -> None:
    graph = DataflowGraph(random_qdq_model(rng, operators))
    groups = brute_groups(graph)
    _, target = taking(joins)
    found = [mask for _ in range(6) if (mask := rng.randrange(1, graph.all_mask + 1)) & graph.needs_kernel]
    convex = [SubGraph(graph, mask) for mask in dict.fromkeys(found) if graph.is_convex(mask)]
    outcome = RuleOutcome(sub_graphs=tuple(convex), refusals={})

    whole = with_whole_groups(outcome, graph, RuleContext(target=target))

    assert all(is_whole(groups, sub_graph.nodes) for sub_graph in whole.sub_graphs)
    assert all(graph.is_convex(sub_graph.nodes) for sub_graph in whole.sub_graphs)
    assert [s for s in convex if is_whole(groups, s.nodes)] == [s for s in whole.sub_graphs if s in convex]
    assert not whole.covered & ~outcome.covered & graph.needs_kernel
    lost = outcome.covered & ~whole.covered & graph.needs_kernel
    assert all(index in whole.refusals for index in range(len(graph)) if lost >> index & 1)


@pytest.mark.guards("a quantised model in the QDQ form")
@given(st.randoms(use_true_random=False), st.integers(1, 12))
@example(random.Random(9105), 5)  # a group with a view inside, which no candidate holds
@settings(max_examples=25, deadline=None)
def test_one_toolchain_alone_never_splits_a_group_either(rng: random.Random, operators: int) -> None:
    graph = DataflowGraph(random_qdq_model(rng, operators))
    groups = brute_groups(graph)
    rule, target = taking(
        rng.choice(list(Joins)), *rng.sample(["Add", "Relu", "Softmax", "MatMul"], k=rng.randrange(3))
    )
    context = RuleContext(target=target)
    spec = FusionSpec(name="mock", rule=rule, targets=(target,))
    rest = FusionSpec(name="rest", rule=rule, targets=(Target(toolchain="rest", fingerprint="1"),))

    found = partition_for(graph, spec, rule.propose(graph, context), context, fallback=rest)

    assert all(is_whole(groups, kernel.sub_graph.nodes) for kernel in found.kernels)


@pytest.mark.guards(
    "nobody takes a quantised operator whole, or nobody gets it right",
    "that one falls apart, the others do not; the report says so",
    area="input",
)
@given(st.randoms(use_true_random=False), st.integers(1, 10))
@settings(max_examples=30, deadline=None)
def test_every_node_is_covered_and_only_what_nobody_takes_whole_falls_apart(rng: random.Random, operators: int) -> None:
    model = random_qdq_model(rng, operators)
    kinds = sorted({node.op_type for node in model.graph})
    mocks = [
        MockToolchain(
            name, costs_us=lambda _: 1.0, operators=rng.sample(kinds, k=rng.randrange(len(kinds) + 1)), joins=joins
        )
        for name, joins in (("a", Joins.ANY), ("b", Joins.NATIVE), ("c", Joins.NONE))
    ]
    last = MockToolchain("last", costs_us=lambda _: 9.0, operators=kinds)  # takes any operator, one by one

    result = partition(model, [*mocks, last])

    graph = result.plan.graph
    for group in brute_groups(graph):
        inside = {graph.nodes[index].op_type for index in range(len(graph)) if graph.completed(group) >> index & 1}
        if any(inside <= set(mock.operators) and mock.joins is not Joins.NONE for mock in mocks):
            assert all(is_whole({group}, kernel.sub_graph.nodes) for kernel in result.plan.kernels)


@pytest.mark.guards(
    "a toolchain refuses one node of a quantised operator",
    "it gets none of it, and each node says which one it was",
    area="input",
)
def test_a_refused_member_takes_the_others_with_it_and_they_say_so() -> None:
    g = QdqBuilder()
    graph = DataflowGraph(g.model(g.q(g.op("Relu", conv(g, g.narrow("x", 1, 2, 4, 4))))))
    rule, target = taking(Joins.ANY, "Relu")

    outcome = rule.propose(graph, RuleContext(target=target))

    assert outcome.sub_graphs == ()
    assert set(outcome.refusals) == set(range(len(graph)))
    assert outcome.refusals[graph.index_of("relu_0")] == "no Relu"
    assert outcome.refusals[graph.index_of("conv_0")] == "quantised together with 'relu_0': no Relu"


def test_a_library_of_single_kernels_gets_what_a_pattern_of_its_own_takes_whole() -> None:
    g = QdqBuilder()
    first = g.q(conv(g, g.narrow("x", 1, 2, 4, 4)))
    graph = DataflowGraph(g.model(g.q(g.op("Relu", conv(g, first)))))
    target = Target(toolchain="mock", fingerprint="1", joins=Joins.NONE)
    table = PatternTable()
    data, weight = (is_op("DequantizeLinear")(wildcard(), wildcard(), wildcard()) for _ in range(2))
    table.pattern(
        "mock.qconv", is_op("QuantizeLinear")(is_op("Conv")(data, weight, wildcard()), wildcard(), wildcard())
    )
    table.predicate("Conv", lambda node: Supported())

    outcome = default_rule(table, target).propose(graph, RuleContext(target=target))

    assert [(s.label, s.nodes) for s in outcome.sub_graphs] == [("mock.qconv", quantised_groups(graph)[0])]
    assert "no predicate takes DequantizeLinear" in outcome.refusals[graph.index_of("conv_1")]


def test_a_pattern_inside_a_group_becomes_a_part_of_it() -> None:
    g = QdqBuilder()
    graph = DataflowGraph(g.model(g.q(g.op("Relu", conv(g, g.narrow("x", 1, 2, 4, 4))))))
    target = Target(toolchain="mock", fingerprint="1", joins=Joins.NATIVE)
    table = PatternTable()
    table.pattern("mock.conv_relu", is_op("Relu")(is_op("Conv")))
    table.predicate("*", lambda node: Supported())

    outcome = default_rule(table, target).propose(graph, RuleContext(target=target))

    [whole] = outcome.sub_graphs
    assert whole.nodes == graph.all_mask
    assert [part.label for part in whole.composites] == ["mock.conv_relu"]


def test_given_cuts_inside_a_group_are_not_made() -> None:
    g = QdqBuilder()
    graph = DataflowGraph(g.model(g.q(conv(g, g.q(conv(g, g.narrow("x", 1, 2, 4, 4)))))))
    rule, target = taking(Joins.ANY)

    regions = RegionsRule(rule).propose(graph, RuleContext(target=target, cut_positions=(2, 4, 6)))

    assert {sub_graph.nodes for sub_graph in regions.sub_graphs} == {0b00001111, 0b11110000, 0b11111111}
