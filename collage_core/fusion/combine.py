"""The closure of candidates under combiners: native fusion, with every intermediate group kept."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from collage_core.fusion.closure import Closure
from collage_core.fusion.combiners import DEFAULT_PRIMITIVES, Combiner
from collage_core.fusion.rule import FusionRule, RuleContext, RuleOutcome
from collage_core.fusion.sub_graph import SubGraph
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import hashable, mask_of


@dataclasses.dataclass(frozen=True)
class CombineByPrimitivesRule(FusionRule):
    """The closure of another rule's candidates under combiners.

    Every reachable combination of groups is considered, in whatever order they are found; smaller groups are
    kept after they are combined. Groups are made smallest first. Bounds: groups deeper than `bounds.max_depth`
    or `target.max_depth` are not made; at most `bounds.max_candidates` groups are made, and the number of joins
    tried for them is limited by `closure.JOINS_PER_GROUP` and `JOINS_AT_ONCE`. The outcome reports when a limit
    was reached.

    Attributes:
        rule: Finds the initial groups.
        primitives: Combiners to apply.
    """

    rule: FusionRule
    primitives: tuple[Combiner, ...] = DEFAULT_PRIMITIVES

    def propose(self, graph: DataflowGraph, context: RuleContext) -> RuleOutcome:
        """Join the other rule's candidates until no new group is found."""
        outcome = self.rule.propose(graph, context)
        # a view the toolchain refuses may not lie between joined nodes
        forbidden = context.refused | mask_of(outcome.refusals) & graph.host_mask
        limit = context.bounds.max_candidates
        depth = min(context.bounds.max_depth, context.target.max_depth or context.bounds.max_depth)
        marked = mask_of(graph.compilers)  # what calls a function marked as a kernel is a kernel of its own
        own = [sub_graph for sub_graph in outcome.sub_graphs if sub_graph.nodes & marked & ~context.refused]
        start = tuple(each for each in outcome.sub_graphs if not each.nodes & marked)
        key = self.primitives, start, depth, hashable(forbidden), limit
        if (closed := context.cache.closures.get(key)) is None:
            closed = context.cache.closures[key] = self._closed(graph, start, depth, forbidden, limit)
        sub_graphs, left_out = closed
        return outcome.with_sub_graphs((*sub_graphs, *own), *left_out)

    def _closed(
        self, graph: DataflowGraph, start: Sequence[SubGraph], depth: int, forbidden: int, limit: int
    ) -> tuple[tuple[SubGraph, ...], tuple[str, ...]]:
        """Return the closure of some groups, and sentences about what a limit cut off."""
        closure = Closure(graph, self.primitives, depth, forbidden)
        cut_off = closure.run(start, limit)
        left_out: tuple[str, ...] = ()
        if closure.exhausted:
            left_out = (f"fused groups beyond what {closure.tried} joins made: the graph branches too widely",)
        elif cut_off:
            left_out = (f"fused groups beyond the first {limit}: at least {cut_off} more pairs could join",)
        return tuple(closure.sub_graphs), left_out
