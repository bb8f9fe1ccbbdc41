"""Each combiner, and all together, against what repeated joining of everything reaches."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir
import pytest

from collage_core.contract import Target
from collage_core.fusion import (
    DEFAULT_PRIMITIVES,
    JOIN_ANYTHING,
    CandidateBounds,
    CombineByPrimitivesRule,
    Combiner,
    ConcatCombiner,
    ConstantsCombiner,
    HorizontalCombiner,
    KindCombiner,
    OpCallByKindRule,
    RuleContext,
    SplitCombiner,
    SubGraph,
    VerticalCombiner,
)
from collage_core.fusion.closure import Closure
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits
from collage_core.ir.operators.op_kind import OpPatternKind
from collage_testing import GraphBuilder
from tests.core.fusion import naive_closure as naive

K = OpPatternKind
PRODUCTS = {"MatMul"}
MAX_DEPTH = 4
Case = tuple[tuple[Combiner, ...], Callable[[list[naive.Found]], list[naive.Joins]]]

_KINDS = [
    naive.by_kind(K.OUT_ELEMENTWISE_FUSABLE, K.BROADCAST),
    naive.by_kind(K.BROADCAST, K.REDUCTION),
    naive.by_kind(K.INJECTIVE, K.INJECTIVE),
]
CASES: dict[str, Case] = {
    "default": (DEFAULT_PRIMITIVES, lambda start: list(_KINDS)),
    "anything": (JOIN_ANYTHING, lambda start: [naive.by_kind(K.OPAQUE, K.OPAQUE)]),
    "epilogue": (
        (KindCombiner(K.OUT_ELEMENTWISE_FUSABLE, K.BROADCAST),),
        lambda start: [naive.by_kind(K.OUT_ELEMENTWISE_FUSABLE, K.BROADCAST)],
    ),
    "constants": ((ConstantsCombiner(),), lambda start: [naive.constants]),
    "concat": (
        (ConcatCombiner(producers=K.OUT_ELEMENTWISE_FUSABLE),),
        lambda start: [naive.with_all("Concat", K.INJECTIVE, K.OUT_ELEMENTWISE_FUSABLE, sources=True)],
    ),
    "split": (
        (SplitCombiner(readers=K.REDUCTION),),
        lambda start: [naive.with_all("Split", K.INJECTIVE, K.REDUCTION, sources=False)],
    ),
    "vertical": (
        (VerticalCombiner(frozenset(PRODUCTS), frozenset(PRODUCTS)),),
        lambda start: [naive.vertical(PRODUCTS, K.REDUCTION, start)],
    ),
    "horizontal": ((HorizontalCombiner(frozenset(PRODUCTS)),), lambda start: [naive.horizontal(PRODUCTS)]),
    "all": (
        (
            *DEFAULT_PRIMITIVES,
            ConstantsCombiner(),
            ConcatCombiner(producers=K.OUT_ELEMENTWISE_FUSABLE),
            SplitCombiner(readers=K.REDUCTION),
            VerticalCombiner(frozenset(PRODUCTS), frozenset(PRODUCTS)),
            HorizontalCombiner(frozenset(PRODUCTS)),
        ),
        lambda start: [
            *_KINDS,
            naive.constants,
            naive.with_all("Concat", K.INJECTIVE, K.OUT_ELEMENTWISE_FUSABLE, sources=True),
            naive.with_all("Split", K.INJECTIVE, K.REDUCTION, sources=False),
            naive.vertical(PRODUCTS, K.REDUCTION, start),
            naive.horizontal(PRODUCTS),
        ],
    ),
}


FAVOURED = {"constants": 7, "concat": 5, "split": 6, "vertical": 2, "horizontal": 2}
"""Which operators come up often, by case: the numbers in `random_graph`."""

GRAPHS = {"all": 25, "anything": 40, "default": 40}
"""How many graphs are tried, by case; others have less to join."""


def random_graph(rng: random.Random, operators: int, favoured: int | None = None) -> DataflowGraph:
    """Operators of every kind over 4 by 4 tensors, most of which read what came shortly before them."""
    g = GraphBuilder("random")
    values = [g.input("x", 4, 4), g.input("z", 4, 4)]

    def value() -> onnx_ir.Value:
        return rng.choice(values[-3:] if rng.random() < 0.6 else values)

    made: list[onnx_ir.Value] = []
    while len(made) < operators:
        match rng.choice([*range(8), *[favoured] * 6] if favoured is not None else range(8)):
            case 0:
                new = [g.op("Relu", value())]
            case 1:
                new = [g.op("Add", value(), value())]
            case 2:
                new = [g.op("MatMul", value(), g.weight(f"w{g.count}", 4, 4))]
            case 3:
                new = [g.op("MatMul", value(), value())]
            case 4:
                new = [g.op("Softmax", value())]
            case 5:
                new = [g.op("Gather", g.op("Concat", value(), value(), axis=0), g.ints(0, 2, 4, 6), axis=0)]
            case 6:
                new = list(g.ops("Split", 2, g.op("Tile", value(), g.ints(2, 1)), axis=0, num_outputs=2))
            case _:
                new = [g.op("Mul", value(), g.op("ConstantOfShape", g.ints(4, 4)))]
        values += new
        made += new
    return DataflowGraph(g.model(*rng.sample(made, k=min(3, len(made)))))


def random_start(rng: random.Random, graph: DataflowGraph) -> list[SubGraph]:
    """Most nodes alone, some under a label, and a few labelled pairs."""
    start = [SubGraph(graph, 1 << index) for index in range(len(graph)) if rng.random() < 0.9]
    start += [SubGraph(graph, 1 << index, "one") for index in range(len(graph)) if rng.random() < 0.15]
    for index, after in enumerate(graph.successors):
        if after and rng.random() < 0.2:
            pair = 1 << index | after & -after
            if graph.is_convex(pair):
                start.append(SubGraph(graph, pair, "two"))
    return start


def as_found(sub_graph: SubGraph) -> naive.Found:
    parts = frozenset((frozenset(_indices(part.nodes)), part.label) for part in sub_graph.as_parts())
    return frozenset(iterate_bits(sub_graph.nodes)), parts


def _indices(mask: int) -> list[int]:
    return [index for index in range(mask.bit_length()) if mask >> index & 1]


def found(graph: DataflowGraph, start: Sequence[SubGraph], combiners: tuple[Combiner, ...]) -> list[SubGraph]:
    closure = Closure(graph, combiners, MAX_DEPTH)
    assert closure.run(start, 1_000_000) == 0
    return closure.sub_graphs


@pytest.mark.parametrize("name", CASES)
def test_what_is_found_is_what_repeated_joining_reaches(name: str) -> None:
    combiners, rules = CASES[name]
    joined = 0
    for seed in range(GRAPHS.get(name, 100)):
        rng = random.Random(seed)
        graph = random_graph(rng, 5, FAVOURED.get(name))
        start = random_start(rng, graph)
        rng.shuffle(start)

        groups = found(graph, start, combiners)

        from_start = [as_found(each) for each in start]
        expected = naive.closure(graph, from_start, rules(from_start), MAX_DEPTH)
        assert {as_found(each) for each in groups} == expected, seed
        assert len(groups) == len(set(groups))
        joined += len(expected) - len(set(from_start))
    assert joined > 20, "the graphs have nothing to join: no test"


@pytest.mark.parametrize("seed", range(10))
def test_the_order_of_the_start_makes_no_difference(seed: int) -> None:
    rng = random.Random(seed)
    graph = random_graph(rng, 7)
    start = random_start(rng, graph)
    expected = found(graph, start, CASES["all"][0])

    for _ in range(4):
        rng.shuffle(start)
        assert found(graph, start, CASES["all"][0]) == expected


def test_joining_anything_finds_every_connected_convex_set(random_model: Callable[..., onnx_ir.Model]) -> None:
    compared = 0
    for seed in range(40):
        graph = DataflowGraph(random_model(seed, 6))
        if graph.host_mask or len(graph) > 9:
            continue
        start = [SubGraph(graph, 1 << index) for index in range(len(graph))]
        closure = Closure(graph, JOIN_ANYTHING, len(graph))
        closure.run(start, 1_000_000)

        connected = {
            nodes for nodes in range(1, 1 << len(graph)) if graph.is_convex(nodes) and _is_connected(graph, nodes)
        }
        assert {each.nodes for each in closure.sub_graphs} == connected
        compared += 1
    assert compared > 10


def _is_connected(graph: DataflowGraph, nodes: int) -> bool:
    reached = nodes & -nodes
    while True:
        around = reached
        for index in _indices(reached):
            around |= (graph.predecessors[index] | graph.successors[index]) & nodes
        if around == reached:
            return reached == nodes
        reached = around


HEAD = ("query", "key", "value")


def attention() -> DataflowGraph:
    """One head as it is exported, without a mask, and the output's projection."""
    g = GraphBuilder()
    x = g.input("x", 4, 8)
    query, key, value = (
        g.op("MatMul", x, g.weight(f"w_{name}", 8, 8), name=name) for name in ("query", "key", "value")
    )
    scores = g.op("MatMul", query, g.op("Transpose", key, perm=[1, 0]), name="scores")
    scaled = g.op("Div", scores, g.constant("root", np.float32(2.8)), name="scale")
    mixed = g.op("MatMul", g.op("Softmax", scaled, name="softmax"), value, name="mix")
    return DataflowGraph(g.model(g.op("MatMul", mixed, g.weight("w", 8, 8), name="project")))


def names(graph: DataflowGraph, combiners: tuple[Combiner, ...]) -> set[frozenset[str]]:
    start = [SubGraph(graph, 1 << index) for index in range(len(graph))]
    closure = Closure(graph, combiners, 8)
    closure.run(start, 10_000)
    return {frozenset(each.names) for each in closure.sub_graphs if len(each.names) > 1}


def test_vertical_combination_finds_attention_with_its_softmax() -> None:
    joined = names(attention(), (VerticalCombiner(frozenset(PRODUCTS), frozenset(PRODUCTS)),))

    assert frozenset({"scores", "scale", "softmax", "mix"}) in joined
    assert frozenset({"mix", "project"}) in joined
    assert not any("query" in each and "mix" in each for each in joined), "three anchors in one kernel"


def test_vertical_combination_keeps_to_what_may_lie_between() -> None:
    broadcast = VerticalCombiner(frozenset(PRODUCTS), frozenset(PRODUCTS), between=K.BROADCAST)

    assert not any({"scores", "mix"} <= each for each in names(attention(), (broadcast,)))


def test_horizontal_combination_finds_query_key_and_value() -> None:
    joined = names(attention(), (HorizontalCombiner(frozenset(PRODUCTS)),))

    assert joined == {
        frozenset({"query", "key"}),
        frozenset({"query", "value"}),
        frozenset({"key", "value"}),
        frozenset({"query", "key", "value"}),
    }


def test_parallel_anchors_leave_by_several_exits_and_take_their_epilogues_in() -> None:
    g = GraphBuilder()
    x = g.input("x", 4, 8)
    biased = [
        g.op("Add", g.op("MatMul", x, g.weight(f"w{n}", 8, 8), name=f"m{n}"), g.weight(f"b{n}", 8), name=f"a{n}")
        for n in range(3)
    ]
    graph = DataflowGraph(g.model(*biased))
    start = [SubGraph(graph, 1 << index) for index in range(len(graph))]
    closure = Closure(graph, (*DEFAULT_PRIMITIVES, HorizontalCombiner(frozenset(PRODUCTS))), 8)
    closure.run(start, 10_000)

    [whole] = [each for each in closure.sub_graphs if each.nodes == graph.all_mask]
    assert whole.exits.bit_count() == 3
    # each anchor is absent, alone or with its bias: 3 ** 3 sets, without the empty one; and each bias alone
    assert len(closure.sub_graphs) == 3**3 - 1 + 3


def test_anchors_that_differ_are_not_put_beside_each_other() -> None:
    g = GraphBuilder()
    x = g.input("x", 1, 4, 8, 8)
    wide = g.op("Conv", x, g.weight("w0", 4, 4, 3, 3), kernel_shape=[3, 3], pads=[1] * 4, name="wide")
    strided = g.op("Conv", x, g.weight("w1", 4, 4, 3, 3), kernel_shape=[3, 3], strides=[2, 2], name="strided")
    same = g.op("Conv", x, g.weight("w2", 6, 4, 3, 3), kernel_shape=[3, 3], pads=[1] * 4, name="same")

    joined = names(DataflowGraph(g.model(wide, strided, same)), (HorizontalCombiner(),))

    assert joined == {frozenset({"wide", "same"})}


def test_a_concat_takes_all_its_producers_or_none() -> None:
    g = GraphBuilder()
    x = g.input("x", 1, 4, 8, 8)
    branches = [g.op("Conv", x, g.weight(f"w{n}", 2, 4, 1, 1), name=f"c{n}") for n in range(3)]
    graph = DataflowGraph(g.model(g.op("Concat", *branches, axis=1, name="join")))

    joined = names(graph, (ConcatCombiner(producers=K.OUT_ELEMENTWISE_FUSABLE),))

    assert joined == {frozenset({"c0", "c1", "c2", "join"})}


def test_a_split_takes_all_its_readers_or_none() -> None:
    g = GraphBuilder()
    one, other = g.ops("Split", 2, g.input("x", 4, 8), name="cut", axis=1, num_outputs=2)
    gate = g.op("Sigmoid", other, name="gate")
    graph = DataflowGraph(g.model(g.op("Mul", one, gate, name="gated")))

    # the readers of the Split are the gate and the product; the product also reads the gate
    assert names(graph, (SplitCombiner(),)) == {frozenset({"cut", "gate", "gated"})}


def test_what_is_made_of_constants_joins_an_opaque_reader() -> None:
    g = GraphBuilder()
    made = g.op("ConstantOfShape", g.ints(4, 8), name="zeros")
    values, _ = g.ops("TopK", 2, g.op("Add", g.input("x", 4, 8), made, name="add"), g.ints(2), name="top")
    graph = DataflowGraph(g.model(values))

    assert names(graph, (ConstantsCombiner(),)) == {frozenset({"zeros", "add"})}


def test_a_way_too_deep_ends_a_vertical_combination() -> None:
    g = GraphBuilder()
    x = g.op("MatMul", g.input("x", 4, 4), g.weight("w0", 4, 4), name="first")
    for _ in range(7):
        x = g.op("Relu", x)
    graph = DataflowGraph(g.model(g.op("MatMul", x, g.weight("w1", 4, 4), name="second")))

    assert names(graph, (VerticalCombiner(),)) == set()


def test_a_concat_of_more_combinations_than_can_be_tried_is_bounded_and_says_so() -> None:
    g = GraphBuilder()
    x = g.input("x", 1, 4)
    branches = []
    for _ in range(14):
        neg = g.op("Neg", g.op("Relu", g.op("Abs", x)))
        branches.append(neg)
    graph = DataflowGraph(g.model(g.op("Exp", g.op("Concat", *branches, axis=0, name="join"), name="last")))
    start = OpCallByKindRule()
    context = RuleContext(target=Target(toolchain="t", fingerprint="t 1"), bounds=CandidateBounds(max_candidates=300))
    kinds = (KindCombiner(K.BROADCAST, K.BROADCAST), ConcatCombiner())

    outcome = CombineByPrimitivesRule(start, kinds).propose(graph, context)

    [said] = outcome.left_out
    assert "fused groups beyond" in said
    assert len(outcome.sub_graphs) <= 300
    join = 1 << graph.index_of("join")
    small = [each for each in outcome.sub_graphs if each.nodes & join and each.nodes != join]
    assert small, "at least the smallest of the 3 ** 14 ways"


def test_a_concat_with_an_input_nobody_takes_is_not_tried_in_vain() -> None:
    g = GraphBuilder()
    x = g.input("x", 1, 4)
    branches = [g.op("Neg", g.op("Relu", g.op("Abs", x))) for _ in range(20)]
    refused = g.op("CumSum", x, g.constant("axis", np.int64(0)), name="refused")
    graph = DataflowGraph(g.model(g.op("Concat", *branches, refused, axis=0)))
    start = [SubGraph(graph, 1 << index) for index in range(len(graph)) if graph.names[index] != "refused"]
    closure = Closure(graph, (KindCombiner(K.BROADCAST, K.BROADCAST), ConcatCombiner()), 8)

    assert closure.run(start, 10_000) == 0
    assert closure.tried < 1_000
