"""Rules that are asked once: what a library takes of a graph is found once, and can be kept."""

from __future__ import annotations

import dataclasses

from collage_core.fusion.rule import FusionRule, RuleContext, RuleOutcome
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import hashable


@dataclasses.dataclass(frozen=True, eq=False)
class OnceRule(FusionRule):
    """Another rule, asked once for each set of refused nodes; the outcome is in the context's cache.

    Attributes:
        rule: The other rule, whose outcome depends on the graph and the refused nodes alone.
    """

    rule: FusionRule

    def propose(self, graph: DataflowGraph, context: RuleContext) -> RuleOutcome:
        """Return what the other rule finds, or found."""
        key = self, hashable(context.refused)
        found = context.cache.outcomes.get(key)
        if found is None:
            found = context.cache.outcomes[key] = self.rule.propose(graph, context)
        return found


@dataclasses.dataclass(frozen=True, eq=False)
class KnownRule(FusionRule):
    """What a rule found in a graph at another time, perhaps on another machine.

    Attributes:
        graph: The graph.
        outcome: What it found.
    """

    graph: DataflowGraph
    outcome: RuleOutcome

    def propose(self, graph: DataflowGraph, context: RuleContext) -> RuleOutcome:
        """Return what was found, without candidates that hold a refused node.

        Raises:
            ValueError: If it is another graph.
        """
        if graph is not self.graph:
            raise ValueError("what was found in one graph says nothing of another")
        refusals = {**self.outcome.refusals, **context.refusals}
        kept = dataclasses.replace(self.outcome, refusals=refusals)
        return kept.with_sub_graphs(each for each in kept.sub_graphs if not each.nodes & context.refused)
