"""Which regions the lazy search proposes: of placements with believed node times, and near those of the best plan."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from collage.explore.exploration import Exploration
from collage_core.candidates.proposals import TargetRule
from collage_core.contract import INVALID, Cost
from collage_core.errors import NoCoverError
from collage_core.fusion import CandidateKernel, SubGraph, merged_neighbours
from collage_core.fusion.coalesce import Units, within
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits, lowest_bit, mask_of, union_of
from collage_core.search import Beliefs, Crossings, SearchCandidate, place

_VALUE_US, _BYTE_US = 5.0, 1e-4
"""First guess of what it costs to change targets: two more kernels, and each byte read and written at 10 GB/s."""
COARSEST: Final = 8.0
"""Multiple of that guess with which placements are cut only where it pays whatever crosses."""
_SCALES = (0.5, 2.0, COARSEST)
"""Multiples of that guess. Small ones cut wherever a target is faster."""


def placed_regions(
    exploration: Exploration, beliefs: Beliefs, scales: Sequence[float] = _SCALES
) -> list[CandidateKernel]:
    """Return the regions of the best placements, for several costs of changing targets.

    Args:
        exploration: What is known so far.
        beliefs: What each node is believed to take on each target.
        scales: Multiples of the first guess of what it costs to change targets.
    """
    graph, pool = exploration.graph, exploration.pool
    rules = {rule.target.name: rule for rule in exploration.setup.rules if rule.target.mixable}
    operators = _operators(exploration)
    times = _times_us(exploration, beliefs, list(rules), operators)
    devices = {name: rule.target.device for name, rule in rules.items()}
    problem = pool.problem()
    found: dict[tuple[str, int], CandidateKernel] = {}
    for scale in scales:
        crossings = Crossings(
            value_us=scale * _VALUE_US, byte_us=scale * _BYTE_US, devices=devices, copies=pool.copy_costs
        )
        try:
            placed = place(problem, operators, times, pool.values, crossings)
        except NoCoverError:  # an operator that only larger kernels hold
            return []
        apart = {name: _apart(graph, beliefs, name, scale * _VALUE_US) for name in placed}
        for name, region in _regions(graph, rules, placed, apart):
            found.setdefault((name, region.nodes), CandidateKernel(region, rules[name].spec, rules[name].target))
    return list(found.values())


def shifted_regions(exploration: Exploration, kernels: Sequence[SearchCandidate]) -> list[CandidateKernel]:
    """Return kernels with one operator more or less at their borders, or with all of a neighbour.

    What reads the same value as a kernel is at its border, too. Only targets that join anything have such kernels.

    Args:
        exploration: What is known so far.
        kernels: Those of a plan.
    """
    graph, operators = exploration.graph, _operators(exploration)
    rules = _joining(exploration)
    found: dict[tuple[str, int], CandidateKernel] = {}
    for kernel in kernels:
        rule = rules.get(kernel.target)
        if rule is None:
            continue
        own = kernel.nodes & graph.needs_kernel
        besides = dict.fromkeys((*operators, *(each.nodes & graph.needs_kernel for each in kernels)))
        more = [own | nodes for nodes in besides if not nodes & own and _touches(graph, nodes, own)]
        less = [own & ~nodes for nodes in operators if own & ~nodes and _is_at_border(graph, nodes, own)]
        for nodes in (*more, *less):
            if (region := _fitting(exploration, rule, nodes)) is not None:
                found.setdefault((kernel.target, region.sub_graph.nodes), region)
    return list(found.values())


def moved_regions(exploration: Exploration, kernels: Sequence[SearchCandidate]) -> list[CandidateKernel]:
    """Return kernels as every other target would run them that joins anything.

    Args:
        exploration: What is known so far.
        kernels: Those of a plan.
    """
    needs_kernel = exploration.graph.needs_kernel
    moved = [
        _fitting(exploration, rule, kernel.nodes & needs_kernel)
        for kernel in kernels
        for name, rule in _joining(exploration).items()
        if name != kernel.target
    ]
    return [region for region in moved if region is not None]


def paired_regions(exploration: Exploration, kernels: Sequence[SearchCandidate]) -> list[CandidateKernel]:
    """Return pairs of a target's kernels as one, where one reads what the other computes, or both read the same.

    Args:
        exploration: What is known so far.
        kernels: Those of a plan; only targets that join anything have such pairs.
    """
    graph, rules = exploration.graph, _joining(exploration)
    pairs = [
        _fitting(exploration, rules[one.target], (one.nodes | other.nodes) & graph.needs_kernel)
        for one, other in itertools.combinations(kernels, 2)
        if one.target == other.target and one.target in rules and _touches(graph, one.nodes, other.nodes)
    ]
    return [region for region in pairs if region is not None]


def _joining(exploration: Exploration) -> dict[str, TargetRule]:
    """Return the rules of targets that join anything and mix, and that proposed something, by target name."""
    return {
        name: proposals.rule
        for name, proposals in exploration.proposed.by_target.items()
        if proposals.rule.takes_any_region and proposals.rule.target.mixable
    }


def _fitting(exploration: Exploration, rule: TargetRule, nodes: int) -> CandidateKernel | None:
    """Return nodes that need a kernel as one kernel of a target, with what belongs to them; None if it takes them not.

    Args:
        exploration: What targets proposed.
        rule: The target with its rule.
        nodes: The mask of nodes.
    """
    graph = exploration.graph
    refused = mask_of({*rule.query, *rule.pinned}) | mask_of(graph.compilers)
    region = SubGraph(graph, graph.completed(nodes))
    covered = exploration.proposed.by_target[rule.target.name].covered
    if nodes & graph.needs_kernel & ~covered or region.nodes & refused:
        return None
    return CandidateKernel(region, rule.spec, rule.target) if region.validity(within(rule.target)) else None


def _touches(graph: DataflowGraph, nodes: int, others: int) -> bool:
    """Return whether one reads what the other computes, or both read the same."""
    inside = list(iterate_bits(nodes & graph.needs_kernel))
    before = union_of(graph.kernel_predecessors[node] for node in inside)
    after = union_of(graph.kernel_successors[node] for node in inside)
    beside = union_of(graph.kernel_successors[node] for node in iterate_bits(before))
    return bool((before | after | beside) & others)


def _is_at_border(graph: DataflowGraph, nodes: int, kernel: int) -> bool:
    """Return whether nodes are in a kernel, and nothing of it computes their inputs, or nothing reads their outputs."""
    inside = nodes & graph.needs_kernel
    rest = kernel & ~inside
    before = union_of(graph.kernel_predecessors[node] for node in iterate_bits(inside))
    after = union_of(graph.kernel_successors[node] for node in iterate_bits(inside))
    return not inside & ~kernel and not (before & rest and after & rest)


def _operators(exploration: Exploration) -> list[int]:
    """Return the masks of nodes that are placed together, with views between, in order of their first nodes."""
    graph, groups = exploration.graph, exploration.proposed.groups
    grouped = mask_of(node for group in groups for node in iterate_bits(group))
    single = [1 << node for node in iterate_bits(graph.needs_kernel & ~grouped)]
    return sorted([*single, *(graph.completed(group) for group in groups)], key=lowest_bit)


def _times_us(
    exploration: Exploration, beliefs: Beliefs, names: Sequence[str], operators: Sequence[int]
) -> dict[str, list[Cost]]:
    """Return what operators are believed to take on targets; infinite where one does not take it, or it failed alone.

    An operator that failed alone on all of them counts as if it had not: it may be right inside a larger kernel.
    """
    pool, needs_kernel = exploration.pool, exploration.graph.needs_kernel
    failed = {
        (c.target.name, c.sub_graph.nodes & needs_kernel)
        for c in pool
        if c.target.name in names and pool.rejection(c) is not None
    }
    times: dict[str, list[Cost]] = {name: [INVALID] * len(operators) for name in names}
    for at, nodes in enumerate(operators):
        taking = [
            name
            for name in names
            if (proposals := exploration.proposed.by_target.get(name)) is not None and not nodes & ~proposals.covered
        ]
        right = [name for name in taking if (name, nodes & needs_kernel) not in failed]
        for name in right or taking:
            times[name][at] = sum(beliefs.node_us(name, node) for node in iterate_bits(nodes))
    return times


def _regions(
    graph: DataflowGraph,
    rules: Mapping[str, TargetRule],
    placed: Mapping[str, Sequence[int]],
    apart: Mapping[str, Sequence[int]],
) -> Iterator[tuple[str, SubGraph]]:
    """Yield the largest kernels of each target's operators; together they can run in sequence."""
    units = Units(graph, [nodes for name in sorted(placed) for nodes in placed[name]])
    for name in sorted(placed):
        rule = rules[name]
        if not rule.takes_any_region:
            continue
        refused = mask_of({*rule.query, *rule.pinned}) | mask_of(graph.compilers)
        for nodes in _connected(graph, placed[name], apart[name]):
            whole = SubGraph(graph, graph.completed(nodes))
            fits = not whole.nodes & refused and bool(whole.validity(within(rule.target)))
            if fits and units.merge(units.holding(nodes)) is not None:
                yield name, whole
                continue
            mine = [SubGraph(graph, each) for each in placed[name] if not each & ~nodes]
            others = [each for other in placed for each in placed[other] if other != name or each & ~nodes]
            for region in merged_neighbours(graph, mine, others, rule.target, forbidden=refused):
                if region.nodes not in placed[name]:
                    yield name, region


def _apart(graph: DataflowGraph, beliefs: Beliefs, name: str, value_us: float) -> list[int]:
    """Return, by node, the mask of its readers that are believed to be better in another kernel of the target."""
    return [
        mask_of(
            after
            for after in iterate_bits(graph.kernel_successors[node])
            if beliefs.change_us(name, node, after) > value_us
        )
        for node in range(len(graph))
    ]


def _connected(graph: DataflowGraph, operators: Sequence[int], apart: Sequence[int]) -> list[int]:
    """Return the masks of nodes that are connected by values, through views too, where they are better together."""
    found: list[int] = []
    inside = mask_of(node for nodes in operators for node in iterate_bits(nodes))
    for nodes in operators:
        reached = nodes
        for node in iterate_bits(nodes):
            reached |= graph.kernel_successors[node] & inside & ~apart[node]
        touching = [each for each in found if each & reached]
        found = [each for each in found if not each & reached]
        for each in touching:
            reached |= each
        found.append(reached)
    return found
