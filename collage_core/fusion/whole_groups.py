"""Replace candidates that split quantised groups by candidates that hold them whole."""

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
    """Another rule's candidates, adapted so that none splits a quantised group.

    Attributes:
        rule: The other rule.
    """

    rule: FusionRule

    def propose(self, graph: DataflowGraph, context: RuleContext) -> RuleOutcome:
        """See `with_whole_groups`."""
        return with_whole_groups(self.rule.propose(graph, context), graph, context)


def with_whole_groups(outcome: RuleOutcome, graph: DataflowGraph, context: RuleContext) -> RuleOutcome:
    """Rewrite a rule's outcome so that no candidate splits a quantised group.

    A splitting candidate is grown until it splits no group, if other candidates cover the added nodes. A target that
    joins nothing has one kernel per pattern and none for unnamed combinations: for such a target, splitting candidates
    are refused.

    Args:
        outcome: Outcome of a rule.
        graph: The graph.
        context: Context with the target and the groups.

    Returns:
        The rewritten outcome; the same one if no candidate splits a group.
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
    """Return the refusal reasons of nodes that lost all their candidates."""
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
