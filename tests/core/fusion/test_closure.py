"""The closure of groups under a limit: what it would be without one, as far as it goes, for less work."""

from __future__ import annotations

from typing import Any

import pytest

import collage_core.fusion.closure
from collage_core.fusion import DEFAULT_PRIMITIVES
from collage_core.fusion.closure import Closure
from collage_core.fusion.groups import Group, united
from collage_core.fusion.sub_graph import SubGraph
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_testing import random_model
from collage_testing.graphs import GraphBuilder

pytestmark = pytest.mark.guards("2,000 nodes one after another; 500 branches into one node")


def closure(graph: DataflowGraph, limit: int) -> tuple[list[int], int]:
    found = Closure(graph, DEFAULT_PRIMITIVES, 4)
    start = [SubGraph(graph, 1 << index) for index in range(len(graph)) if not graph.is_host(index)]
    turned_away = found.run(start, limit)
    return [each.nodes for each in found.sub_graphs], turned_away


@pytest.mark.parametrize("seed", range(12))
def test_the_first_groups_are_the_same_under_any_limit(seed: int) -> None:
    graph = DataflowGraph(random_model(seed))
    everything, turned_away = closure(graph, 100_000)
    assert turned_away == 0

    for limit in (1, 7, len(everything) // 2, len(everything) - 1):
        groups, turned_away = closure(graph, limit)
        assert groups == everything[:limit]
        assert (turned_away > 0) == (limit < len(everything))


def test_a_node_that_reads_many_branches_costs_no_more_than_the_groups_that_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    g = GraphBuilder("fan")
    x = g.input("x", 4)
    graph = DataflowGraph(g.model(g.op("Concat", *(g.op("Relu", g.op("Neg", x)) for _ in range(120)), axis=0)))
    made = 0

    def counted(*arguments: Any) -> Group:
        nonlocal made
        made += 1
        return united(*arguments)

    monkeypatch.setattr(collage_core.fusion.closure, "united", counted)
    groups, turned_away = closure(graph, 500)

    assert len(groups) == 500
    assert turned_away > 0
    assert made < 5 * 500
