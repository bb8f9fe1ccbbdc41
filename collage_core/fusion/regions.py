"""Propose regions for whole-graph compilers: runs between cuts, and maximal regions around refused nodes."""

from __future__ import annotations

import dataclasses
import itertools

from collage_core.fusion.cuts import cut_positions
from collage_core.fusion.grouping import maximal_regions
from collage_core.fusion.quantised import is_split
from collage_core.fusion.rule import FusionRule, RuleContext, RuleOutcome
from collage_core.fusion.sub_graph import SubGraph, labelled_parts
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import mask_of


def supported_nodes(graph: DataflowGraph, outcome: RuleOutcome, context: RuleContext) -> int:
    """Return the mask of nodes a toolchain takes into regions: covered nodes, and views it does not refuse.

    A call of a function marked as one kernel stays a kernel of its own. A quantised operator is taken whole or not at
    all.

    Args:
        graph: The graph.
        outcome: Outcome of the toolchain's rule.
        context: Context of the rule, with the refusals of the toolchain's query.
    """
    views = graph.host_mask & ~context.refused & ~mask_of(outcome.refusals)
    taken = outcome.covered & graph.needs_kernel & ~mask_of(graph.compilers) | views
    for group in context.whole(graph):
        if graph.completed(group) & ~taken:
            taken &= ~group
    return taken


@dataclasses.dataclass(frozen=True)
class RegionsRule(FusionRule):
    """Proposes regions, up to the whole model, of the nodes that another rule accepts.

    With the graph cut into K segments there is a region for each run of neighbouring segments, K * (K + 1) / 2
    including the whole graph, which is the last. Runs of a topological order are convex. If a run holds refused
    nodes, it is replaced by its maximal supported parts. Exits are not limited.

    Attributes:
        rule: Its candidates determine the accepted nodes; labelled ones become parts of the regions.
    """

    rule: FusionRule

    def propose(self, graph: DataflowGraph, context: RuleContext) -> RuleOutcome:
        """Build regions between cuts at the context's positions, or at chosen ones; skip cuts that split a group."""
        outcome = self.rule.propose(graph, context)
        supported = supported_nodes(graph, outcome, context)
        groups = context.whole(graph)
        limit = context.bounds.segments - 1
        positions = context.cut_positions
        if positions is None:
            positions = cut_positions(graph, limit, max_live=context.bounds.max_live, groups=groups)
        positions = [place for place in positions if not is_split(groups, (1 << place) - 1)]
        left_out = []
        if len(positions) > limit:
            left_out.append(f"{len(positions) - limit} cut positions beyond the first {limit}")
        ends = sorted({0, *positions[:limit], len(graph)})
        regions: dict[int, None] = {}
        for start, end in itertools.combinations(ends, 2):
            run = ((1 << end) - 1) & ~((1 << start) - 1)
            regions.update(dict.fromkeys(maximal_regions(graph, supported, run, groups)[0]))
        labelled = [sub_graph for sub_graph in outcome.sub_graphs if sub_graph.label]
        return outcome.with_sub_graphs(
            (SubGraph(graph, nodes, composites=labelled_parts(labelled, nodes)) for nodes in regions), *left_out
        )
