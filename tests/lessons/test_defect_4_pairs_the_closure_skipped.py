"""The closure joined a new group with old ones downstream of it only, so some candidates were never found."""

from __future__ import annotations

import pytest

from collage_core.fusion import DEFAULT_PRIMITIVES, KindCombiner, SubGraph
from collage_core.fusion.closure import Closure
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.operators.op_kind import OpPatternKind
from collage_testing import GraphBuilder


def old_closure(graph: DataflowGraph, start: list[SubGraph]) -> set[int]:
    """The old way: each group, when its turn comes, is joined with the groups known then that read from it."""
    allowed = [each for each in DEFAULT_PRIMITIVES if isinstance(each, KindCombiner)]
    found = [each.nodes for each in start]
    for nodes in found:  # grows meanwhile
        for other in list(found):
            if nodes & other or not any(graph.successors[index] & other for index in members(nodes)):
                continue
            kinds = kind(graph, nodes), kind(graph, other)
            joined = nodes | other
            if any(each.joins(*kinds) for each in allowed) and graph.is_convex(joined) and joined not in found:
                found.append(joined)
    return set(found)


def members(nodes: int) -> list[int]:
    return [index for index in range(nodes.bit_length()) if nodes >> index & 1]


def kind(graph: DataflowGraph, nodes: int) -> OpPatternKind:
    return max(graph.kinds[index] for index in members(nodes))


@pytest.fixture
def graph() -> DataflowGraph:
    """A product whose epilogue reads a mask that takes two steps to make: the epilogue is new, the product is old."""
    g = GraphBuilder()
    product = g.op("MatMul", g.input("x", 4, 4), g.weight("w", 4, 4), name="product")
    mask = g.op("Neg", g.op("Relu", g.input("m", 4, 4), name="relu"), name="neg")
    return DataflowGraph(g.model(g.op("Add", product, mask, name="add")))


def test_an_old_group_upstream_meets_a_new_one_downstream(graph: DataflowGraph) -> None:
    at = {name: 1 << graph.index_of(name) for name in graph.names}
    start = [SubGraph(graph, nodes) for nodes in at.values()]
    closure = Closure(graph, DEFAULT_PRIMITIVES, max_depth=8)
    closure.run(start, limit=1_000)
    found = {each.nodes for each in closure.sub_graphs}

    whole = at["product"] | at["add"] | at["neg"] | at["relu"]
    assert whole in found
    # The mask's operators may not flow into a group with an anchor: the epilogue has to be made first, then the product
    # joins it. The old way looks at the product, which is first, before there is such an epilogue.
    assert whole not in old_closure(graph, start)
    assert old_closure(graph, start) < found
