"""Rules made of rules: unions and filters."""

from __future__ import annotations

import dataclasses

from collage_core.fusion.rule import FusionRule, RuleContext, RuleOutcome
from collage_core.fusion.sub_graph import SubGraphConfig
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits, mask_of, union_of


@dataclasses.dataclass(frozen=True)
class UnionRule(FusionRule):
    """What several rules find, each sub-graph once.

    Attributes:
        rules: The rules, in priority order.
    """

    rules: tuple[FusionRule, ...]

    def propose(self, graph: DataflowGraph, context: RuleContext) -> RuleOutcome:
        """Asks each rule. A node is refused if no rule has it in a candidate.

        The first reason is kept, of those that say more than that a pattern looks otherwise if there is one.
        """
        outcomes = [rule.propose(graph, context) for rule in self.rules]
        covered = union_of(outcome.covered for outcome in outcomes)
        refusals: dict[int, str] = {}
        unlike: dict[int, str] = {}
        for outcome in outcomes:
            for index, reason in outcome.refusals.items():
                if not covered >> index & 1:
                    (unlike if outcome.unlike >> index & 1 else refusals).setdefault(index, reason)
        only_unlike = unlike.keys() - refusals.keys()
        merged = RuleOutcome(
            refusals={**unlike, **refusals},
            left_out=tuple(line for o in outcomes for line in o.left_out),
            unlike=mask_of(only_unlike),
        )
        return merged.with_sub_graphs(sub_graph for outcome in outcomes for sub_graph in outcome.sub_graphs)


@dataclasses.dataclass(frozen=True)
class OnlyValidRule(FusionRule):
    """Those of another rule's candidates that can be one kernel.

    Attributes:
        rule: The other rule.
        config: What can be one kernel.
    """

    rule: FusionRule
    config: SubGraphConfig

    def propose(self, graph: DataflowGraph, context: RuleContext) -> RuleOutcome:
        """Filters, after views on the border were dropped. A node refused so everywhere gets the first reason."""
        outcome = self.rule.propose(graph, context)
        kept = []
        alone: dict[int, str] = {}
        for candidate in outcome.sub_graphs:
            sub_graph = candidate.completed()
            if sub_graph is None:
                continue
            answer = sub_graph.validity(self.config)
            if answer:
                kept.append(sub_graph)
            else:
                for index in iterate_bits(sub_graph.nodes & graph.needs_kernel):
                    alone.setdefault(index, answer.reason)
        result = outcome.with_sub_graphs(kept)
        covered = result.covered
        refusals = {index: reason for index, reason in alone.items() if not covered >> index & 1}
        return dataclasses.replace(result, refusals={**outcome.refusals, **refusals})
