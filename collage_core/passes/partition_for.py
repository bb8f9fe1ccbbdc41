"""Assign as many nodes as possible to one toolchain, without a search."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

import onnx_ir
from onnx_ir.passes import InPlacePass, PassResult

from collage_core import plugin_calls
from collage_core.contract.target import Joins
from collage_core.fusion import (
    CandidateBounds,
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
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits, mask_of
from collage_core.passes.marking import Mark, give_call, mark_groups


def partition_for(
    graph: DataflowGraph,
    spec: FusionSpec,
    outcome: RuleOutcome,
    context: RuleContext,
    *,
    fallback: FusionSpec | None = None,
) -> Partitioning:
    """Assign every node that one toolchain supports to it, in as few kernels as a greedy choice yields.

    A `joins=any` target gets the largest regions around the nodes it refuses, where its rule proposes them. Otherwise a
    target gets its largest candidates first. No kernel splits a quantised operator, and all are candidates.

    Args:
        graph: The graph.
        spec: Fusion spec of the toolchain; `context.target` is one of its targets.
        outcome: Candidates and refusals of the toolchain's rule.
        context: Context in which the rule ran.
        fallback: Receives the remaining nodes, in connected groups; it has one target.

    Raises:
        PartitioningError: If nodes remain and there is no fallback.
    """
    kernels, refused = taken_for(graph, spec, outcome, context)
    if fallback is not None:
        kernels.extend(CandidateKernel(SubGraph(graph, nodes), fallback) for nodes in refused if nodes)
    return Partitioning(graph, tuple(kernels))


class PartitionFor(InPlacePass):
    """Marks all nodes that one target supports, in as few kernels as `partition_for`; refused ones are unchanged.

    Kernels marked before keep their owner; one without an owner is assigned to this target if the target
    supports all of it.

    Args:
        spec: How the target finds candidates; it has one target.
        query: Returns the nodes that the target's library refuses, as reasons by index; None to skip the query.
        bounds: Limits on the candidates.

    Attributes:
        kernels: Kernels marked in the last model.
        refusals: By name, reason for which a node of that model was refused.
    """

    def __init__(
        self,
        spec: FusionSpec,
        *,
        query: Callable[[DataflowGraph], Mapping[int, str]] | None = None,
        bounds: CandidateBounds | None = None,
    ) -> None:
        super().__init__()
        self._spec = spec
        [self._target] = spec.targets
        self._query = query
        self._bounds = bounds or CandidateBounds()
        self.kernels: tuple[CandidateKernel, ...] = ()
        self.refusals: Mapping[str, str] = {}

    def call(self, model: onnx_ir.Model) -> PassResult:
        """Rewrite a prepared model."""
        graph = DataflowGraph(model)
        context = RuleContext(
            target=self._target,
            bounds=self._bounds,
            refusals={} if self._query is None else self._query(graph),
            cut_positions=(),
        )
        outcome = proposed(self._spec, graph, context)
        kernels, _ = taken_for(graph, self._spec, outcome, context)
        self.refusals = {graph.names[index]: reason for index, reason in sorted(outcome.refusals.items())}
        self.kernels = tuple(kernels)
        return PassResult(model, modified=mark_kernels(graph, kernels))


def proposed(spec: FusionSpec, graph: DataflowGraph, context: RuleContext) -> RuleOutcome:
    """Run the rule of one target, whose predicates are a plugin's code.

    Raises:
        PluginError: If it exceeds the time limit.
    """
    call = functools.partial(spec.rule.propose, graph, context)
    limit_s = plugin_calls.RULE_LIMIT_S
    return plugin_calls.in_time(context.target.toolchain, "finding candidates", call, limit_s=limit_s)


def mark_kernels(graph: DataflowGraph, kernels: Sequence[CandidateKernel]) -> bool:
    """Rewrite the graph's model: turn each kernel into one its target owns, nodes marked before included.

    Returns:
        Whether anything changed.
    """
    changed = False
    groups = []
    for kernel in kernels:
        mark = Mark(toolchain=kernel.target.toolchain, target=kernel.target.name)
        index = kernel.sub_graph.nodes.bit_length() - 1
        if kernel.sub_graph.nodes == 1 << index and index in graph.compilers:
            changed |= give_call(graph, index, mark)
        else:
            groups.append((kernel.sub_graph, mark))
    return mark_groups(graph, groups) or changed


def taken_for(
    graph: DataflowGraph, spec: FusionSpec, outcome: RuleOutcome, context: RuleContext
) -> tuple[list[CandidateKernel], list[int]]:
    """Select what one target supports, as kernels that can run in sequence, and the groups of remaining nodes.

    See `partition_for`.
    """
    groups = context.whole(graph)
    outcome = with_whole_groups(outcome, graph, context)
    supported = supported_nodes(graph, outcome, context)
    for sub_graph in outcome.sub_graphs:  # marked calls of this toolchain are candidates of their own
        if sub_graph.nodes.bit_count() == 1 and sub_graph.nodes.bit_length() - 1 in graph.compilers:
            supported |= sub_graph.nodes
    taken, refused = maximal_regions(graph, supported, whole=groups)
    marked = mask_of(graph.compilers)
    kernels: list[CandidateKernel] = []
    for region in taken:
        known = [candidate for candidate in outcome.sub_graphs if candidate.nodes == region]
        if context.target.joins is Joins.ANY and known and not region & marked:
            chosen, rest = [known[-1]], 0
        else:
            chosen, rest = _largest_first(graph, outcome.sub_graphs, region)
        kernels.extend(CandidateKernel(sub_graph, spec, context.target) for sub_graph in chosen)
        refused = [*refused, *_one_by_one(graph, rest, groups)]
    return kernels, refused


def _one_by_one(graph: DataflowGraph, nodes: int, groups: Sequence[int]) -> list[int]:
    """Split nodes into single kernel nodes; keep quantised operators whole, with the views inside them."""
    whole = [group for group in groups if not group & ~nodes]
    for group in whole:
        nodes &= ~group
    return [*(graph.completed(group) for group in whole), *(1 << index for index in iterate_bits(nodes))]


def _largest_first(graph: DataflowGraph, candidates: Sequence[SubGraph], region: int) -> tuple[list[SubGraph], int]:
    """Choose disjoint single-exit candidates inside a region; return them and the nodes not covered.

    Single-exit sub-graphs never depend on each other in a cycle.
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
