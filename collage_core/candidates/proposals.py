"""Phase 2: candidates of every target, and the choice of candidates that a preset measures."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeAlias

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
    quantised_groups,
    with_whole_groups,
)
from collage_core.fusion.rule import RuleCache
from collage_core.fusion.rule_of_table import BaseRule, base_rule, joined_rule
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits, lowest_bit, union_of
from collage_core.ir.graph.work import estimated_work_us
from collage_core.registry import Toolchain

Outcomes: TypeAlias = dict[tuple[int, int], RuleOutcome]
"""What rules found, by the fusion spec's identity and the mask of refused nodes."""

_PLUGIN_RULE = "collage_fusion_spec"
_NAMES_SHOWN = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class TargetRule:
    """A target with the rule that finds its candidates.

    Attributes:
        target: The target.
        spec: The named rule.
        query: By node index, reason for which the library itself refused the node.
        base: What the library takes, of which the default rule makes the rest; None where the rule is another.
        own: Origin of a rule that is not the default one (the plugin's hook or the user's option), whose proposals
            have to be validated; empty for the default rule.
        pinned: By node index, reason for which the user assigned the node to other targets.
    """

    target: Target
    spec: FusionSpec
    query: Mapping[int, str]
    base: BaseRule | None = None
    own: str = ""
    pinned: Mapping[int, str] = dataclasses.field(default_factory=dict)

    @property
    def is_plugins_own(self) -> bool:
        """Whether the rule is the plugin's own."""
        return self.own == _PLUGIN_RULE

    @property
    def takes_any_region(self) -> bool:
        """Whether any region of what the target takes may become its kernel, proposed or not.

        Not where the user or the plugin has a rule of their own: then there are the kernels that it proposes, and no
        others.
        """
        return self.target.joins is Joins.ANY and not self.own


@dataclasses.dataclass(frozen=True, kw_only=True)
class Proposals:
    """Candidates that one target proposes for one graph.

    Attributes:
        graph: The graph.
        rule: The target and its rule.
        candidates: The candidates, without duplicates, in a deterministic order.
        refusals: By node index, reason for which the target refused the node.
        left_out: One sentence for each kind of candidate that a bound excluded.
        taken: What the library takes as it is, nothing pinned and nothing joined; None where the rule is not the
            default one, or something is pinned.
    """

    graph: DataflowGraph
    rule: TargetRule
    candidates: tuple[CandidateKernel, ...]
    refusals: Mapping[int, str]
    left_out: tuple[str, ...]
    taken: RuleOutcome | None = None

    @functools.cached_property
    def covered(self) -> int:
        """Mask of the nodes in some candidate."""
        return union_of(candidate.sub_graph.nodes for candidate in self.candidates)


def target_rule(toolchain: Toolchain, target: Target, query: Mapping[int, str]) -> TargetRule:
    """Build the rule of one target from its pattern table (phase 1).

    Raises:
        PluginError: If a hook fails.
    """
    base = base_rule(toolchain.pattern_table(target), target)
    default = joined_rule(base, target)
    rule: FusionRule = toolchain.fusion_rule(target, default)
    spec = FusionSpec(name=target.name, rule=rule, targets=(target,))
    if rule is default:
        return TargetRule(target=target, spec=spec, query=query, base=base)
    return TargetRule(target=target, spec=spec, query=query, own=_PLUGIN_RULE)


def propose(
    rule: TargetRule,
    graph: DataflowGraph,
    bounds: CandidateBounds,
    *,
    cuts: Sequence[int] | None = (),
    groups: Sequence[int] | None = None,
    cache: RuleCache | None = None,
    outcomes: Outcomes | None = None,
) -> Proposals:
    """Run the rule of one target.

    A target that does not mix proposes only the whole graph. No candidate splits a group, whatever a plugin's own
    rule proposes.

    Args:
        rule: The rule.
        graph: The prepared model's graph.
        bounds: Bounds on the number of candidates.
        cuts: Positions at which regions may begin and end; None to choose them by estimated work.
        groups: Sets of nodes that no candidate may split; the graph's quantised operators if None.
        cache: What rules found out of this graph before; an empty one if None.
        outcomes: What rules found with the other arguments as they are; added to. So a rule for several targets runs
            once for those that refuse the same nodes, with the first as the context's target.

    Raises:
        PluginError: If the plugin's own rule fails or proposes sub-graphs that cannot be kernels, or its predicates
            hang.
    """
    context = RuleContext(
        target=rule.target,
        bounds=bounds,
        refusals={**rule.query, **rule.pinned},
        cut_positions=None if cuts is None else tuple(cuts),
        groups=quantised_groups(graph) if groups is None else groups,
        cache=RuleCache() if cache is None else cache,
    )
    key, known = (id(rule.spec), context.refused), {} if outcomes is None else outcomes
    if key not in known:
        known[key] = _outcome(rule, graph, context)
    outcome = known[key]
    if rule.own:
        outcome = with_whole_groups(outcome, graph, context)
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
        taken=None if rule.base is None or rule.own or rule.pinned else rule.base.rule.propose(graph, context),
    )


def _outcome(rule: TargetRule, graph: DataflowGraph, context: RuleContext) -> RuleOutcome:
    """Run the rule, and validate the outcome if the rule is not the default one."""
    toolchain, limit_s = rule.target.toolchain, plugin_calls.RULE_LIMIT_S
    call = functools.partial(rule.spec.rule.propose, graph, context)
    if not rule.own:
        return plugin_calls.in_time(toolchain, "finding candidates", call, limit_s=limit_s)
    outcome = plugin_calls.in_driver(toolchain, rule.own, call, limit_s=limit_s)
    if problem := plugin_calls.in_driver(toolchain, rule.own, functools.partial(_problem, outcome, graph, context)):
        raise PluginError(toolchain, rule.own, problem)
    return outcome


def _problem(outcome: object, graph: DataflowGraph, context: RuleContext) -> str:
    """Return the problem with the outcome of a plugin's rule; empty if there is none."""
    if not isinstance(outcome, RuleOutcome):
        return f"its rule answered with {type(outcome).__name__}, not RuleOutcome"
    reasons = outcome.refusals
    if not isinstance(reasons, Mapping) or not all(
        type(index) is int and 0 <= index < len(graph) and isinstance(reason, str) for index, reason in reasons.items()
    ):
        return "the refusals of its rule are not reasons by node index"
    most = 2 * context.bounds.max_candidates + len(graph)
    for number, sub_graph in enumerate(outcome.sub_graphs):
        if number == most:
            return f"its rule proposed more than the {most} sub-graphs that are possible"
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
    """Select the candidates of one target that a preset measures before any region is chosen.

    What is the whole graph in one kernel is always selected and, for a target that joins arbitrary operators, the part
    of it that the target supports: regions that no other candidate contains. Single operators and fused groups are
    ranked by the estimated work of their structure in the whole model; the heaviest distinct structures are selected.

    Args:
        graph: The graph.
        candidates: Candidates of one target, without regions between cuts.
        key: Returns the measurement key of a sub-graph; sub-graphs with equal keys share measurements.
        operators: Number of distinct operators to select; half as many groups are selected.
        groups: Sets of nodes that count as one operator because they are never split.
    """
    work = estimated_work_us(graph)
    whole = [c for c in candidates if not graph.needs_kernel & ~c.sub_graph.nodes]
    maximal = _maximal([c for c in candidates if c.target.joins is Joins.ANY]) | _maximal(whole)
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
    """Return the candidates of several nodes that no other candidate contains."""
    by_size = sorted(candidates, key=lambda c: (-c.sub_graph.nodes.bit_count(), c.sub_graph.nodes))
    found: list[CandidateKernel] = []
    for candidate in by_size:
        nodes = candidate.sub_graph.nodes
        if nodes.bit_count() > 1 and not any(nodes & ~other.sub_graph.nodes == 0 for other in found):
            found.append(candidate)
    return set(found)
