"""Phase 2: the candidates of every target, and which of them a preset has measured."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from collage_core import plugin_calls
from collage_core.contract import Joins, Target
from collage_core.errors import PluginError
from collage_core.fusion import (
    CandidateBounds,
    CandidateKernel,
    FusionRule,
    FusionSpec,
    RuleContext,
    RuleOutcome,
    SubGraph,
    default_rule,
    quantised_groups,
    with_whole_groups,
)
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits, lowest_bit, union_of
from collage_core.ir.graph.work import estimated_work_us
from collage_core.registry import Toolchain

_PLUGIN_RULE = "collage_fusion_spec"
_NAMES_SHOWN = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class TargetRule:
    """One target with the rule that finds its candidates.

    Attributes:
        target: The target.
        spec: The rule, named.
        query: Reason by node index of what the library itself refused.
        own: Who brings the rule, where it is not the default one, so that what it proposes is to be looked at: the
            plugin's hook, or the user's option.
        pinned: Reason by node index of what the user gives to others.
    """

    target: Target
    spec: FusionSpec
    query: Mapping[int, str]
    own: str = ""
    pinned: Mapping[int, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Proposals:
    """What one target proposes for one graph.

    Attributes:
        graph: The graph.
        rule: Whose.
        candidates: Its candidates, each once, in a deterministic order.
        refusals: Reason by node index of what it does not take.
        left_out: What bounds cut off, a sentence each.
    """

    graph: DataflowGraph
    rule: TargetRule
    candidates: tuple[CandidateKernel, ...]
    refusals: Mapping[int, str]
    left_out: tuple[str, ...]

    @property
    def covered(self) -> int:
        """Mask of the nodes in some candidate."""
        return union_of(candidate.sub_graph.nodes for candidate in self.candidates)


def target_rule(toolchain: Toolchain, target: Target, query: Mapping[int, str]) -> TargetRule:
    """Phase 1 for one target: its table becomes a rule.

    Raises:
        PluginError: If a hook fails.
    """
    default = default_rule(toolchain.pattern_table(target), target)
    rule: FusionRule = toolchain.fusion_rule(target, default)
    spec = FusionSpec(name=target.name, rule=rule, targets=(target,))
    return TargetRule(target=target, spec=spec, query=query, own=_PLUGIN_RULE if rule is not default else "")


def propose(
    rule: TargetRule,
    graph: DataflowGraph,
    bounds: CandidateBounds,
    *,
    cuts: Sequence[int] | None = (),
    groups: Sequence[int] | None = None,
) -> Proposals:
    """Runs one target's rule.

    A target that does not mix proposes nothing but the whole graph. No candidate splits a group, whatever a plugin's
    own rule proposes.

    Args:
        rule: The rule.
        graph: The prepared model's graph.
        bounds: How many candidates to make.
        cuts: Where regions may begin and end; None to choose by estimated work.
        groups: Sets of nodes of which no candidate may hold a part; the graph's quantised operators if None.

    Raises:
        PluginError: If the plugin's own rule fails or proposes what can be no kernel, or its predicates hang.
    """
    context = RuleContext(
        target=rule.target,
        bounds=bounds,
        refusals={**rule.query, **rule.pinned},
        cut_positions=None if cuts is None else tuple(cuts),
        groups=quantised_groups(graph) if groups is None else groups,
    )
    outcome = _outcome(rule, graph, context)
    sub_graphs: Iterable[SubGraph] = outcome.sub_graphs
    if not rule.target.mixable:
        whole = graph.completed(graph.needs_kernel)
        sub_graphs = [sub_graph for sub_graph in outcome.sub_graphs if sub_graph.nodes == whole]
    return Proposals(
        graph=graph,
        rule=rule,
        candidates=tuple(CandidateKernel(sub_graph, rule.spec, rule.target) for sub_graph in sub_graphs),
        refusals={index: reason for index, reason in outcome.refusals.items() if not graph.is_host(index)},
        left_out=outcome.left_out,
    )


def _outcome(rule: TargetRule, graph: DataflowGraph, context: RuleContext) -> RuleOutcome:
    """What the rule finds."""
    toolchain, limit_s = rule.target.toolchain, plugin_calls.RULE_LIMIT_S
    call = functools.partial(rule.spec.rule.propose, graph, context)
    if not rule.own:
        return plugin_calls.in_time(toolchain, "finding candidates", call, limit_s=limit_s)
    outcome = plugin_calls.in_driver(toolchain, rule.own, call, limit_s=limit_s)
    if problem := plugin_calls.in_driver(toolchain, rule.own, functools.partial(_problem, outcome, graph, context)):
        raise PluginError(toolchain, rule.own, problem)
    return with_whole_groups(outcome, graph, context)


def _problem(outcome: object, graph: DataflowGraph, context: RuleContext) -> str:
    """What is wrong with the answer of a plugin's rule; empty if nothing."""
    if not isinstance(outcome, RuleOutcome):
        return f"its rule answered with {type(outcome).__name__}, not RuleOutcome"
    reasons = outcome.refusals
    if not isinstance(reasons, Mapping) or not all(
        type(index) is int and 0 <= index < len(graph) and isinstance(reason, str) for index, reason in reasons.items()
    ):
        return "the refusals of its rule are not reasons by node index"
    for sub_graph in outcome.sub_graphs:
        if not isinstance(sub_graph, SubGraph) or sub_graph.graph is not graph:
            return f"its rule proposed {type(sub_graph).__name__}, not a SubGraph of the graph it was given"
        if not sub_graph.nodes & graph.needs_kernel or sub_graph.nodes & ~graph.all_mask:
            return "its rule proposed a sub-graph in which nothing needs a kernel"
        names = ", ".join(sub_graph.names[:_NAMES_SHOWN])
        if sub_graph.nodes & context.refused:
            return f"its rule proposed what its own query refuses, within {names}"
        if not sub_graph.is_convex:
            return f"its rule proposed a sub-graph out of which a value flows and back in: {names}"
    return ""


def worthwhile(
    graph: DataflowGraph,
    candidates: Sequence[CandidateKernel],
    key: Callable[[SubGraph], str],
    operators: int,
    groups: Collection[int] = (),
) -> tuple[CandidateKernel, ...]:
    """The candidates of one target a preset has measured before any region is chosen.

    Of a target that joins anything, regions that no other candidate contains are always among them: the whole
    graph, or what the target can take of it. Of single operators, and of fused groups, the structurally distinct
    ones with most estimated work in the whole model come first.

    Args:
        graph: The graph.
        candidates: One target's, without regions between cuts.
        key: What makes two sub-graphs the same to measure.
        operators: How many distinct operators, and half as many groups.
        groups: Sets of nodes that count as one operator: those that never come apart.
    """
    work = estimated_work_us(graph)
    maximal = _maximal([c for c in candidates if c.target.joins is Joins.ANY])
    single: dict[str, float] = {}
    group: dict[str, float] = {}
    keys: dict[CandidateKernel, str] = {}
    largest: dict[int, CandidateKernel] = {}
    for candidate in candidates:
        nodes = candidate.sub_graph.nodes & graph.needs_kernel
        if candidate in maximal or not nodes:
            continue
        if nodes.bit_count() == 1 or nodes in groups:
            name = keys[candidate] = key(candidate.sub_graph)
            single[name] = single.get(name, 0.0) + sum(work[index] for index in iterate_bits(nodes))
            continue
        lowest = lowest_bit(nodes)
        rival = largest.get(lowest)
        if rival is None or nodes.bit_count() > (rival.sub_graph.nodes & graph.needs_kernel).bit_count():
            largest[lowest] = candidate
    for candidate in largest.values():
        name = keys[candidate] = key(candidate.sub_graph)
        nodes = candidate.sub_graph.nodes & graph.needs_kernel
        group[name] = group.get(name, 0.0) + sum(work[index] for index in iterate_bits(nodes))
    wanted = {*_heaviest(single, operators), *_heaviest(group, operators // 2)}
    return tuple(c for c in candidates if c in maximal or keys.get(c) in wanted)


def _heaviest(work: Mapping[str, float], count: int) -> list[str]:
    return sorted(work, key=lambda name: (-work[name], name))[:count]


def _maximal(candidates: Sequence[CandidateKernel]) -> set[CandidateKernel]:
    """Candidates of several nodes that no other candidate contains."""
    by_size = sorted(candidates, key=lambda c: (-c.sub_graph.nodes.bit_count(), c.sub_graph.nodes))
    found: list[CandidateKernel] = []
    for candidate in by_size:
        nodes = candidate.sub_graph.nodes
        if nodes.bit_count() > 1 and not any(nodes & ~other.sub_graph.nodes == 0 for other in found):
            found.append(candidate)
    return set(found)
