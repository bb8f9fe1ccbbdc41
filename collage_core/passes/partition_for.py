"""As much as possible to one toolchain, without any search."""

from __future__ import annotations

from collections.abc import Sequence

from collage_core.contract.target import Joins
from collage_core.fusion import (
    CandidateKernel,
    FusionSpec,
    Partitioning,
    RuleContext,
    RuleOutcome,
    SubGraph,
    maximal_regions,
    supported_nodes,
    with_whole_groups,
)
from collage_core.ir.dataflow import DataflowGraph
from collage_core.ir.index_set import iterate_bits


def partition_for(
    graph: DataflowGraph,
    spec: FusionSpec,
    outcome: RuleOutcome,
    context: RuleContext,
    *,
    fallback: FusionSpec | None = None,
) -> Partitioning:
    """Gives every node one toolchain takes to it, in as few kernels as a greedy choice makes.

    A `joins=any` target gets the largest regions around what it refuses; others their largest candidates first. No
    kernel splits a quantised operator.

    Args:
        graph: The graph.
        spec: Of the toolchain; `context.target` is one of its targets.
        outcome: What its rule found, and refused.
        context: What it was found with.
        fallback: Gets what is left, in connected groups; it has one target.

    Raises:
        PartitioningError: If something is left and there is no fallback.
    """
    groups = context.whole(graph)
    outcome = with_whole_groups(outcome, graph, context)
    supported = supported_nodes(graph, outcome, context)
    for sub_graph in outcome.sub_graphs:  # marked calls of this toolchain are candidates of their own
        if sub_graph.nodes.bit_count() == 1 and sub_graph.nodes.bit_length() - 1 in graph.compilers:
            supported |= sub_graph.nodes
    taken, refused = maximal_regions(graph, supported, whole=groups)
    marked = 0
    for index in graph.compilers:
        marked |= 1 << index
    kernels: list[CandidateKernel] = []
    for region in taken:
        if context.target.joins is Joins.ANY and not region & marked:
            known = [candidate for candidate in outcome.sub_graphs if candidate.nodes == region]
            chosen, rest = [known[-1] if known else SubGraph(graph, region)], 0
        else:
            chosen, rest = _largest_first(graph, outcome.sub_graphs, region)
        kernels.extend(CandidateKernel(sub_graph, spec, context.target) for sub_graph in chosen)
        refused = [*refused, *_one_by_one(graph, rest, groups)]
    if fallback is not None:
        kernels.extend(CandidateKernel(SubGraph(graph, nodes), fallback) for nodes in refused if nodes)
    return Partitioning(graph, tuple(kernels))


def _one_by_one(graph: DataflowGraph, nodes: int, groups: Sequence[int]) -> list[int]:
    """Each kernel node alone, but quantised operators whole, with the views inside them."""
    whole = [group for group in groups if not group & ~nodes]
    for group in whole:
        nodes &= ~group
    return [*(graph.completed(group) for group in whole), *(1 << index for index in iterate_bits(nodes))]


def _largest_first(graph: DataflowGraph, candidates: Sequence[SubGraph], region: int) -> tuple[list[SubGraph], int]:
    """Disjoint single-exit candidates inside a region, and the nodes none of them holds.

    Single-exit sub-graphs never wait for each other in a circle.
    """
    inside = [
        candidate
        for candidate in candidates
        if not candidate.nodes & ~region and (candidate.exits.bit_count() == 1 or candidate.nodes.bit_count() == 1)
    ]
    inside.sort(key=lambda candidate: (-(candidate.nodes & graph.needs_kernel).bit_count(), not candidate.label))
    chosen = []
    free = region & graph.needs_kernel
    for candidate in inside:
        kernels = candidate.nodes & graph.needs_kernel
        if not kernels & ~free:
            chosen.append(candidate)
            free &= ~kernels
    return chosen, free
