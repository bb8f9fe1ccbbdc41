"""Rules composed of other rules: unions and filters."""

from __future__ import annotations

import dataclasses

from collage_core.fusion.rule import FusionRule, RuleContext, RuleOutcome
from collage_core.fusion.sub_graph import SubGraphConfig
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits, mask_of, union_of


@dataclasses.dataclass(frozen=True)
class UnionRule(FusionRule):
    """The union of several rules' candidates, without duplicates.

    Attributes:
        rules: The rules, in priority order.
    """

    rules: tuple[FusionRule, ...]

    def propose(self, graph: DataflowGraph, context: RuleContext) -> RuleOutcome:
        """Combine the outcomes of all rules; a node is refused if no rule covers it.

        The first reason is kept. Reasons that only report a pattern mismatch are used if there is no other.
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
    """The valid candidates of another rule.

    Attributes:
        rule: The other rule.
        config: Validity limits of a kernel.
    """

    rule: FusionRule
    config: SubGraphConfig

    def propose(self, graph: DataflowGraph, context: RuleContext) -> RuleOutcome:
        """Drop invalid candidates, after removing views on the border.

        A node that loses all its candidates is refused with the first reason.
        """
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
