"""The closure under combiners against a fixpoint that tries every pair of sets."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir
from hypothesis import given, settings
from hypothesis import strategies as st

from collage_core.contract import Target
from collage_core.fusion import (
    DEFAULT_PRIMITIVES,
    CandidateBounds,
    CombineByPrimitivesRule,
    OpCallByKindRule,
    RuleContext,
    SubGraph,
)
from collage_core.ir.dataflow import DataflowGraph


def fixpoint(graph: DataflowGraph, start: list[SubGraph], max_depth: int) -> set[int]:
    known = {sub_graph.nodes: sub_graph for sub_graph in start}
    grown = True
    while grown:
        grown = False
        for up in list(known.values()):
            for down in list(known.values()):
                if up.nodes & down.nodes:
                    continue
                union = up.union(down)
                direct = union.nodes & ~up.nodes & ~down.nodes
                reads = up.outputs & (down.nodes | direct) and down.inputs & (up.nodes | direct)
                if (
                    union.nodes not in known
                    and reads
                    and any(p.joins(up.kind, down.kind) for p in DEFAULT_PRIMITIVES)
                    and union.is_convex
                    and union.depth <= max_depth
                    and any(graph.kernel_successors[i] & down.nodes for i in up.index_set if not graph.is_host(i))
                ):
                    known[union.nodes] = union
                    grown = True
    return set(known)


@given(st.integers(0, 10_000), st.integers(1, 5))
@settings(max_examples=60, deadline=None)
def test_the_closure_finds_every_reachable_group(
    random_model: Callable[..., onnx_ir.Model], seed: int, max_depth: int
) -> None:
    graph = DataflowGraph(random_model(seed, 6))
    context = RuleContext(
        target=Target(toolchain="mock", fingerprint="mock 1"), bounds=CandidateBounds(max_depth=max_depth)
    )
    base = OpCallByKindRule()

    found = [s.nodes for s in CombineByPrimitivesRule(base).propose(graph, context).sub_graphs]

    assert len(found) == len(set(found))
    assert set(found) == fixpoint(graph, base.candidates(graph, context), max_depth)
