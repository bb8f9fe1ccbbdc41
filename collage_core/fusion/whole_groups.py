"""Quantised groups as candidates, in place of what would split them."""

from __future__ import annotations

import dataclasses

from collage_core.contract.target import Joins
from collage_core.fusion.quantised import grown, is_split
from collage_core.fusion.rule import FusionRule, RuleContext, RuleOutcome
from collage_core.fusion.sub_graph import SubGraph, labelled_parts
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits, mask_of

_NAMES_SHOWN = 4


@dataclasses.dataclass(frozen=True)
class WholeGroupsRule(FusionRule):
    """Another rule's candidates, none of which splits a quantised group.

    Attributes:
        rule: The other rule.
    """

    rule: FusionRule

    def propose(self, graph: DataflowGraph, context: RuleContext) -> RuleOutcome:
        """See `with_whole_groups`."""
        return with_whole_groups(self.rule.propose(graph, context), graph, context)


def with_whole_groups(outcome: RuleOutcome, graph: DataflowGraph, context: RuleContext) -> RuleOutcome:
    """What a rule found, none of it splitting a quantised group.

    What splits one grows until it does not, if the other candidates hold what it gains. A target that joins nothing has
    one kernel for each of its patterns and none for what it never named: there, what splits a group is refused.

    Args:
        outcome: What a rule found.
        graph: In which graph.
        context: With which target and groups.

    Returns:
        The same where nothing splits a group.
    """
    groups = context.whole(graph)
    split = {sub_graph for sub_graph in outcome.sub_graphs if is_split(groups, sub_graph.nodes)}
    if not split:
        return outcome
    known = {sub_graph.nodes for sub_graph in outcome.sub_graphs if sub_graph not in split}
    labelled = [sub_graph for sub_graph in outcome.sub_graphs if sub_graph.label]
    refused_views = mask_of(outcome.refusals) & graph.host_mask
    missing = graph.needs_kernel & ~outcome.covered | refused_views | context.refused
    kept = []
    for sub_graph in outcome.sub_graphs:
        if sub_graph not in split:
            kept.append(sub_graph)
        elif context.target.joins is not Joins.NONE:
            nodes = grown(graph, groups, sub_graph.nodes)
            if nodes not in known and not nodes & missing:
                known.add(nodes)
                kept.append(SubGraph(graph, nodes, composites=labelled_parts(labelled, nodes)))
    whole = outcome.with_sub_graphs(kept)
    refusals = {**_reasons(outcome, whole, groups, graph), **outcome.refusals}
    return dataclasses.replace(whole, refusals=refusals)


def _reasons(outcome: RuleOutcome, whole: RuleOutcome, groups: tuple[int, ...], graph: DataflowGraph) -> dict[int, str]:
    """Why the nodes are refused that had a candidate and have none now."""
    lost = outcome.covered & ~whole.covered & graph.needs_kernel
    reasons = dict.fromkeys(iterate_bits(lost), "proposed only with a part of a quantised operator")
    for group in groups:
        nodes = graph.completed(group)
        refused = [index for index in iterate_bits(nodes) if index in outcome.refusals]
        if refused:
            why = f"quantised together with {graph.names[refused[0]]!r}: {outcome.refusals[refused[0]]}"
        else:
            names = [repr(graph.names[index]) for index in iterate_bits(group)]
            shown = ", ".join(names[:_NAMES_SHOWN]) + (" and others" if len(names) > _NAMES_SHOWN else "")
            why = f"one quantised operator with others, and nothing takes it whole: {shown}"
        reasons.update(dict.fromkeys(iterate_bits(group & lost), why))
    return reasons
