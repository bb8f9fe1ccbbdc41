"""What merging neighbours may and may not do, on random partitionings and on the instances that went wrong before."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import onnx_ir
import pytest

from collage_core.contract import Joins, Supported, Target
from collage_core.fusion import (
    JOIN_ANYTHING,
    CandidateBounds,
    CombineByPrimitivesRule,
    CompositeRule,
    DFPatternRule,
    MaxCoalesceRule,
    OpCallByKindRule,
    OpPredicateRule,
    RuleContext,
    SubGraph,
    SubGraphConfig,
    merged_neighbours,
)
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.patterns import FusionPattern, PatternTable, is_op
from collage_testing import chain
from tests.core.fusion.runnable import can_run

Parsed = Callable[..., onnx_ir.Model]
TARGET = Target(toolchain="t", fingerprint="t 1", joins=Joins.ANY)


def random_plan(rng: random.Random, graph: DataflowGraph) -> list[SubGraph]:
    """Kernels that can run one after the other: single nodes, and some put together that need not touch."""
    kernels = [1 << index for index in range(len(graph)) if not graph.is_host(index)]
    for _ in range(len(graph)):
        one, other = rng.sample(kernels, 2) if len(kernels) > 1 else (0, 0)
        rest = [nodes for nodes in kernels if nodes not in (one, other)]
        joined = graph.completed(one | other)
        if joined and rng.random() < 0.6 and can_run(graph, [*rest, joined]):
            kernels = [*rest, joined]
    return [SubGraph(graph, nodes) for nodes in kernels]


@pytest.mark.parametrize("seed", range(60))
def test_merged_kernels_are_disjoint_can_run_and_keep_to_the_limits(
    random_model: Callable[..., onnx_ir.Model], seed: int
) -> None:
    rng = random.Random(seed)
    graph = DataflowGraph(random_model(seed, 9))
    plan = random_plan(rng, graph)
    mine = [kernel for kernel in plan if rng.random() < 0.7]
    others = [kernel.nodes for kernel in plan if kernel not in mine]
    target = Target(toolchain="t", fingerprint="t 1", max_depth=rng.choice([None, 4]), max_inputs=rng.choice([None, 2]))

    merged = merged_neighbours(graph, mine, others, target)

    assert _kernels(graph, merged) == _kernels(graph, mine)
    assert sum(each.nodes.bit_count() for each in merged) == _kernels(graph, merged).bit_count() + _views(graph, merged)
    assert can_run(graph, [*(each.nodes for each in merged), *others])
    for each in merged:
        if each not in mine:
            assert target.max_depth is None or each.depth <= target.max_depth
            assert target.max_inputs is None or len(each.input_values) <= target.max_inputs


def _kernels(graph: DataflowGraph, sub_graphs: Sequence[SubGraph]) -> int:
    mask = 0
    for each in sub_graphs:
        mask |= each.nodes & graph.needs_kernel
    return mask


def _views(graph: DataflowGraph, sub_graphs: Sequence[SubGraph]) -> int:
    return sum((each.nodes & graph.host_mask).bit_count() for each in sub_graphs)


@pytest.mark.parametrize("seed", range(40))
def test_the_rule_gives_disjoint_candidates_that_can_run(random_model: Callable[..., onnx_ir.Model], seed: int) -> None:
    graph = DataflowGraph(random_model(seed, 9))
    overlapping = CombineByPrimitivesRule(OpCallByKindRule(), JOIN_ANYTHING)
    context = RuleContext(target=TARGET, bounds=CandidateBounds(max_depth=3, max_candidates=2_000))

    found = MaxCoalesceRule(overlapping, SubGraphConfig(max_depth=5)).propose(graph, context).sub_graphs

    covered = 0
    for each in found:
        assert not each.nodes & covered
        covered |= each.nodes
        assert each.depth <= 5
    rest = [1 << index for index in range(len(graph)) if graph.needs_kernel & ~covered & 1 << index]
    assert can_run(graph, [*(each.nodes for each in found), *rest])


def test_neighbours_that_would_wait_for_another_kernel_and_be_waited_for_stay_apart(parsed: Parsed) -> None:
    graph = DataflowGraph(
        parsed("""g (float[4] x, float[4] z) => (float[4] p, float[4] q) {
        a = Relu(x) p = Neg(a) b = Exp(z) q = Add(a, b) }""")
    )
    at = {name: 1 << graph.index_of(name) for name in graph.names}
    mine = [SubGraph(graph, at["Relu_0"]), SubGraph(graph, at["Add_3"])]
    other = at["Neg_1"] | at["Exp_2"]  # one kernel: it reads what Relu makes, and Add reads what it makes

    assert graph.is_convex(mine[0].nodes | mine[1].nodes)
    assert merged_neighbours(graph, mine, [other], TARGET) == mine


def test_everything_that_may_be_one_is_one() -> None:
    graph = DataflowGraph(chain("Relu", "Neg", "Exp", "Tanh", "Abs", shape=(4, 4)))

    [whole] = MaxCoalesceRule(OpCallByKindRule()).candidates(graph, RuleContext(target=TARGET))

    assert whole.nodes == graph.all_mask


def test_labelled_candidates_stay_parts_of_what_is_merged() -> None:
    graph = DataflowGraph(chain("Relu", "Neg", "Exp", shape=(4, 4)))
    neg = CompositeRule(DFPatternRule(FusionPattern(name="t.neg", pattern=is_op("Exp")(is_op("Neg")))), "t.neg")

    found = neg.candidates(graph, RuleContext(target=TARGET))

    [merged] = merged_neighbours(graph, [SubGraph(graph, 1), *found], [], TARGET)

    assert [(part.label, part.nodes) for part in merged.composites] == [("t.neg", 0b110)]


def test_a_refused_view_keeps_two_kernels_apart(parsed: Parsed) -> None:
    graph = DataflowGraph(
        parsed("g (float[2,2] x) => (float[4] y) <int64[1] flat = {4}> { a = Relu(x) v = Reshape(a, flat) y = Neg(v) }")
    )
    view = 1 << graph.index_of("Reshape_1")
    kernels = [SubGraph(graph, 1 << graph.index_of(name)) for name in ("Relu_0", "Neg_2")]

    assert merged_neighbours(graph, kernels, [], TARGET, forbidden=view) == kernels
    assert [each.nodes for each in merged_neighbours(graph, kernels, [], TARGET)] == [graph.all_mask]


def test_what_a_toolchain_does_not_take_is_never_inside(parsed: Parsed) -> None:
    graph = DataflowGraph(parsed("g (float[4] x) => (float[4] y) { a = Relu(x) b = Neg(a) c = Exp(b) y = Add(a, c) }"))
    table = PatternTable()
    for operator in ("Relu", "Exp", "Add"):
        table.predicate(operator, lambda node: Supported())

    found = MaxCoalesceRule(OpPredicateRule(table)).candidates(graph, RuleContext(target=TARGET))

    # Relu with Add would wait for Neg, which waits for Relu
    assert {each.names for each in found} == {("Relu_0",), ("Exp_2", "Add_3")}
