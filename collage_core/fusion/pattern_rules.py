"""Propose and label the matches of patterns."""

from __future__ import annotations

import dataclasses

from collage_core.fusion.rule import FusionRule, RuleContext, RuleOutcome
from collage_core.fusion.sub_graph import SubGraph
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits
from collage_core.patterns import FusionPattern, Mismatch


@dataclasses.dataclass(frozen=True)
class DFPatternRule(FusionRule):
    """Proposes one candidate per node at which a pattern matches and its check succeeds.

    Nodes matched by wildcards stay outside, and all overlapping matches are kept. Candidates have the
    attributes that the pattern's `attrs_getter` returns, and no label: see `CompositeRule`.

    Attributes:
        pattern: The pattern.
    """

    pattern: FusionPattern

    def propose(self, graph: DataflowGraph, context: RuleContext) -> RuleOutcome:
        """Match the pattern with every node as its root."""
        found = []
        refusals: dict[int, str] = {}
        unlike = 0
        for index in iterate_bits(graph.needs_kernel):
            result = self.pattern.match(graph, index)
            if isinstance(result, Mismatch):
                if result.nodes >> index & 1:  # the root itself matched: worth telling
                    refusals[index] = f"{self.pattern.name}: {result.reason}"
                    unlike |= 1 << index
                continue
            nodes = graph.completed(result.nodes)
            refused = nodes & context.refused
            if refused:
                refusals[index] = context.refusals[refused.bit_length() - 1]
                continue
            answer = self.pattern.check(result) if self.pattern.check is not None else None
            if answer is not None and not answer:
                refusals[index] = f"{self.pattern.name}: {answer.reason}"
                continue
            if not graph.is_convex(nodes):
                refusals[index] = f"{self.pattern.name}: a value flows out of the match and back in"
                continue
            attributes = self.pattern.attrs_getter(result) if self.pattern.attrs_getter is not None else {}
            found.append(SubGraph(graph, nodes, attributes=tuple(sorted(attributes.items()))))
        return RuleOutcome(sub_graphs=tuple(found), refusals=refusals, unlike=unlike)


@dataclasses.dataclass(frozen=True)
class CompositeRule(FusionRule):
    """Labels another rule's candidates, so that the toolchain gets each as one named group.

    Attributes:
        rule: The other rule.
        label: The label.
    """

    rule: FusionRule
    label: str

    def propose(self, graph: DataflowGraph, context: RuleContext) -> RuleOutcome:
        """Label the other rule's candidates."""
        outcome = self.rule.propose(graph, context)
        return outcome.with_sub_graphs(
            sub_graph.labelled(self.label, dict(sub_graph.attributes)) for sub_graph in outcome.sub_graphs
        )
