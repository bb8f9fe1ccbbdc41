"""Merge neighbouring kernels; shared by `MaxCoalesceRule`, the search's last step and `partition_for`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence

from collage_core.contract.target import Target
from collage_core.fusion.rule import FusionRule, RuleContext, RuleOutcome
from collage_core.fusion.sub_graph import SubGraph, SubGraphConfig
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits, mask_of


class Units:
    """Disjoint sets of kernel nodes and the dependencies between them, updated as sets are merged.

    Args:
        graph: The graph.
        units: The sets. They can be ordered for execution, and every node on a path between two of them is in one.
    """

    def __init__(self, graph: DataflowGraph, units: Sequence[int]) -> None:
        self._of: dict[int, int] = {}
        for number, nodes in enumerate(units):
            self._of.update(dict.fromkeys(iterate_bits(nodes & graph.needs_kernel), number))
        self._nodes = [list(iterate_bits(nodes & graph.needs_kernel)) for nodes in units]
        self._readers: list[set[int]] = [set() for _ in units]
        self._sources: list[set[int]] = [set() for _ in units]
        for index, number in self._of.items():
            for after in iterate_bits(graph.kernel_successors[index]):
                reader = self._of.get(after)
                if reader is not None and reader != number:
                    self._readers[number].add(reader)
                    self._sources[reader].add(number)

    def holding(self, nodes: int) -> set[int]:
        """Return the units that contain some of these nodes."""
        return {self._of[index] for index in iterate_bits(nodes) if index in self._of}

    def beside(self, unit: int) -> set[int]:
        """Return the units that read from a unit or are read by it."""
        return self._readers[unit] | self._sources[unit]

    def merge(self, units: Iterable[int]) -> int | None:
        """Merge several units into one.

        Returns:
            Number of the merged unit, the lowest of theirs; None, with nothing changed, if the merge would create a
            dependency cycle.
        """
        members = set(units)
        if self._closes_circle(members):
            return None
        kept = min(members)
        for sides, others in ((self._readers, self._sources), (self._sources, self._readers)):
            around = set[int]().union(*(sides[member] for member in members)) - members
            for member in members:
                sides[member] = set()
            sides[kept] = around
            for other in around:
                others[other] = others[other] - members | {kept}
        for member in members - {kept}:
            self._of.update(dict.fromkeys(self._nodes[member], kept))
            self._nodes[kept] += self._nodes[member]
            self._nodes[member] = []
        return kept

    def _closes_circle(self, members: set[int]) -> bool:
        # Where all but one member are read by members only, what comes back to one of them leads to that one, by which
        # it left: there was a circle before. The same the other way round.
        for sides in (self._readers, self._sources):
            if sum(not sides[member] or not sides[member] <= members for member in members) < 2:
                return False
        waiting = list(set[int]().union(*(self._readers[member] for member in members)) - members)
        seen = set(waiting)
        while waiting:
            for reader in self._readers[waiting.pop()]:
                if reader in members:
                    return True
                if reader not in seen:
                    seen.add(reader)
                    waiting.append(reader)
        return False


Members = tuple[int, ...]


def coalesced(units: Units, mergeable: Sequence[int], allow: Callable[[Members], bool]) -> list[Members]:
    """Merge neighbours greedily: extend each unit in turn until no neighbour can be added.

    No step creates a cycle, so the result can run in sequence if the units could. Merging all neighbours at once does
    not guarantee that: of two pairs each may depend on the other.

    Args:
        units: The units, which are changed.
        mergeable: Numbers of the units that may be merged, in the order they are extended.
        allow: Returns whether units, given by number in any order, may be merged.

    Returns:
        The merged units, each as the numbers of its members.
    """
    made: dict[int, Members] = {number: (number,) for number in mergeable}
    for number in mergeable:
        if number not in made:
            continue
        refused: set[int] = set()
        while True:
            beside = sorted(other for other in units.beside(number) if other in made and other not in refused)
            taken = None
            for other in beside:
                if allow((*made[number], *made[other])) and (taken := units.merge((number, other))) is not None:
                    made[taken] = made.pop(number) + made.pop(other)
                    number = taken
                    refused.clear()  # what would have been in the way may be inside now
                    break
                refused.add(other)
            if taken is None:
                break
    return list(made.values())


def merged_neighbours(
    graph: DataflowGraph,
    mine: Sequence[SubGraph],
    others: Sequence[int],
    target: Target,
    config: SubGraphConfig | None = None,
    forbidden: int = 0,
) -> list[SubGraph]:
    """Merge neighbouring kernels of one target within the target's limits.

    The result is a proposal that has not been measured; fast parts do not imply a fast whole. Calls of a function
    marked as one kernel are not merged.

    Args:
        graph: The graph.
        mine: Disjoint kernels of the target.
        others: Masks of all other nodes that need a kernel, one per kernel; together with `mine` they can run in
            sequence.
        target: The target; its limits apply to the merged kernels.
        config: Further limits.
        forbidden: Mask of the views that may not lie inside because the target refuses them.

    Returns:
        Disjoint sub-graphs that, with `others`, can run in sequence; unmerged ones are unchanged.
    """
    limits = within(target, config)

    def joined(numbers: tuple[int, ...]) -> SubGraph:
        first, *rest = (mine[number] for number in numbers)
        return first.union(*rest) if rest else first  # a union of one would lose its label

    def allow(numbers: tuple[int, ...]) -> bool:
        whole = joined(numbers)
        return not whole.nodes & forbidden and bool(whole.validity(limits))

    units = Units(graph, [*(each.nodes for each in mine), *others])
    marked = mask_of(graph.compilers)
    turns = [number for number, each in enumerate(mine) if not each.nodes & marked]
    turns.sort(key=lambda number: mine[number].nodes & -mine[number].nodes)
    merged = [joined(numbers) for numbers in coalesced(units, turns, allow)]
    return [*merged, *(each for each in mine if each.nodes & marked)]


def within(target: Target, config: SubGraphConfig | None = None) -> SubGraphConfig:
    """Combine the limits of a target with further limits."""
    config = config or SubGraphConfig()
    return dataclasses.replace(
        config,
        max_depth=_least(config.max_depth, target.max_depth),
        max_inputs=_least(config.max_inputs, target.max_inputs),
    )


def _least(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)


@dataclasses.dataclass(frozen=True)
class MaxCoalesceRule(FusionRule):
    """Merges another rule's candidates into maximal ones, like a partitioner without a search.

    The largest of overlapping candidates is kept, and among equals the first; then neighbours are merged. The
    results are disjoint, can be ordered for execution, and each respects the limits of `config` and of the
    target. With a search, merging belongs after it (the engine's `collage.explore` merges the kernels of one
    target on the best path and measures the result): before it, keeping only the largest candidates loses the
    best mix.

    Attributes:
        rule: The other rule.
        config: Validity limits of a kernel, besides those of the target.
    """

    rule: FusionRule
    config: SubGraphConfig = dataclasses.field(default_factory=SubGraphConfig)

    def propose(self, graph: DataflowGraph, context: RuleContext) -> RuleOutcome:
        """Select the largest compatible candidates, and merge them."""
        outcome = self.rule.propose(graph, context)
        limits = within(context.target, self.config)
        refused = mask_of(outcome.refusals) & graph.host_mask | context.refused
        units = Units(graph, [1 << index for index in range(len(graph))])
        chosen: list[SubGraph] = []
        free = graph.needs_kernel
        for sub_graph in sorted(outcome.sub_graphs, key=_largest_first):
            completed = sub_graph.completed()
            if completed is None or completed.nodes & graph.needs_kernel & ~free or completed.nodes & refused:
                continue
            if completed.validity(limits) and units.merge(units.holding(completed.nodes)) is not None:
                chosen.append(completed)
                free &= ~completed.nodes
        others = [1 << index for index in iterate_bits(free)]
        merged = merged_neighbours(graph, chosen, others, context.target, self.config, refused)
        return outcome.with_sub_graphs(sorted(merged, key=lambda each: each.nodes & -each.nodes))


def _largest_first(sub_graph: SubGraph) -> tuple[object, ...]:
    kernels = sub_graph.nodes & sub_graph.graph.needs_kernel
    return -kernels.bit_count(), kernels & -kernels, not sub_graph.label, kernels, sub_graph.label
