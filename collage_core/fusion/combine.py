"""The closure of candidates under combiners: native fusion, with every intermediate group kept."""

from __future__ import annotations

import bisect
import dataclasses
import math
from collections.abc import Iterable

from collage_core.fusion.rule import FusionRule, RuleContext, RuleOutcome
from collage_core.fusion.sub_graph import SubGraph, inside_depth
from collage_core.ir.canonical import Composite
from collage_core.ir.dataflow import DataflowGraph
from collage_core.ir.index_set import iterate_bits
from collage_core.ir.op_kind import OpPatternKind

_K = OpPatternKind
_Key = tuple[int, str, tuple[Composite, ...]]


@dataclasses.dataclass(frozen=True, slots=True)
class KindCombiner:
    """Joins a group to one that reads its output, if both are of small enough kind.

    Attributes:
        upstream: Largest kind of the group that is read.
        downstream: Largest kind of the group that reads.
    """

    upstream: OpPatternKind
    downstream: OpPatternKind

    def joins(self, upstream: OpPatternKind, downstream: OpPatternKind) -> bool:
        """Whether groups of these kinds may become one."""
        return upstream <= self.upstream and downstream <= self.downstream


DEFAULT_PRIMITIVES: tuple[KindCombiner, ...] = (
    KindCombiner(_K.OUT_ELEMENTWISE_FUSABLE, _K.BROADCAST),
    KindCombiner(_K.BROADCAST, _K.REDUCTION),
    KindCombiner(_K.INJECTIVE, _K.INJECTIVE),
)
"""What classic fusion passes join: an anchor with its element-wise epilogue, element-wise work into the reduction that
reads it, and index work with index work. A Concat is injective, so it joins with any or all of its injective
producers."""


@dataclasses.dataclass(frozen=True)
class CombineByPrimitivesRule(FusionRule):
    """The closure of another rule's candidates under combiners.

    Every pair of groups that can be reached is considered in both directions, whichever was found first; smaller
    groups are not dropped when they were combined. Groups are made smallest first. Bounds:
    groups deeper than `bounds.max_depth`, or `target.max_depth`, are not made; and at most `bounds.max_candidates`
    groups are. The outcome says when that cut anything off.

    Attributes:
        rule: Finds the groups to start from.
        primitives: What may be joined.
    """

    rule: FusionRule
    primitives: tuple[KindCombiner, ...] = DEFAULT_PRIMITIVES

    def propose(self, graph: DataflowGraph, context: RuleContext) -> RuleOutcome:
        """Starts from the other rule's candidates and joins until nothing new is found."""
        outcome = self.rule.propose(graph, context)
        forbidden = context.refused
        for index in outcome.refusals:
            if graph.is_host(index):  # a view the toolchain refuses may not lie between joined nodes
                forbidden |= 1 << index
        depth = min(context.bounds.max_depth, context.target.max_depth or context.bounds.max_depth)
        closure = _Closure(graph, self.primitives, depth, forbidden)
        cut_off = closure.run(outcome.sub_graphs, context.bounds.max_candidates)
        left_out = (
            [f"fused groups beyond the first {context.bounds.max_candidates}: at least {cut_off} more pairs could join"]
            if cut_off
            else []
        )
        return outcome.with_sub_graphs(closure.sub_graphs(), *left_out)


@dataclasses.dataclass(frozen=True, slots=True)
class _Group:
    """A candidate with what joining needs to know, so that no loop over all nodes is needed per pair."""

    sub_graph: SubGraph
    kind: OpPatternKind
    depth: int
    ancestors: int
    descendants: int
    before: int
    """Kernel nodes outside that it reads from, directly or through views."""
    after: int
    """Kernel nodes outside that read from it."""


class _Closure:
    """The groups found so far, indexed by node."""

    def __init__(
        self, graph: DataflowGraph, primitives: tuple[KindCombiner, ...], max_depth: int, forbidden: int
    ) -> None:
        self._graph = graph
        self._allowed = {
            (up, down): any(primitive.joins(up, down) for primitive in primitives)
            for up in OpPatternKind
            for down in OpPatternKind
        }
        self._max_depth = max_depth
        self._forbidden = forbidden
        self._groups: dict[_Key, _Group] = {}
        self._seen: set[_Key] = set()
        self._waiting = _Waiting(0)
        self._holding: list[list[_Group]] = [[] for _ in range(len(graph))]

    def sub_graphs(self) -> list[SubGraph]:
        return [group.sub_graph for group in self._groups.values()]

    def run(self, start: Iterable[SubGraph], limit: int) -> int:
        """Joins until nothing is new or `limit` groups exist; returns how many possible joins were not followed."""
        waiting = self._waiting = _Waiting(limit)
        for sub_graph in start:
            completed = sub_graph.completed()
            if completed is not None and not completed.nodes & self._forbidden:
                waiting.add(_measured(completed))
        while (group := waiting.smallest()) is not None:
            key = _key(group.sub_graph)
            if key in self._groups:
                continue
            waiting.room -= 1
            # Each pair meets when the later of the two arrives here, whatever made it.
            for other in self._neighbours(group, group.before):
                for joined in self._joined(other, group):
                    waiting.add(joined)
            for other in self._neighbours(group, group.after):
                for joined in self._joined(group, other):
                    waiting.add(joined)
            self._groups[key] = group
            for index in iterate_bits(group.sub_graph.nodes & self._graph.needs_kernel):
                self._holding[index].append(group)
        return waiting.turned_away

    def _neighbours(self, group: _Group, around: int) -> Iterable[_Group]:
        """Known groups, disjoint from `group`, that hold one of the nodes `around`, each once.

        Without those that would make too large a group with it: they are known smallest first.
        """
        nodes = group.sub_graph.nodes
        most = self._waiting.largest_size() - nodes.bit_count()
        found: dict[int, _Group] = {}
        for index in iterate_bits(around):
            for other in self._holding[index]:
                if other.sub_graph.nodes.bit_count() > most:
                    self._waiting.turned_away += 1
                    break
                if not other.sub_graph.nodes & nodes:
                    found[id(other)] = other
        return found.values()

    def _joined(self, upstream: _Group, downstream: _Group) -> Iterable[_Group]:
        if not self._allowed[upstream.kind, downstream.kind]:
            return
        graph = self._graph
        kernels = upstream.sub_graph.nodes | downstream.sub_graph.nodes
        nodes = graph.completed(kernels)
        if nodes & self._forbidden or not self._waiting.admits(nodes):
            return
        ancestors, descendants = (
            upstream.ancestors | downstream.ancestors,
            upstream.descendants | downstream.descendants,
        )
        if ancestors & descendants & ~nodes:
            return
        union = upstream.sub_graph.union(downstream.sub_graph)
        key = _key(union)
        if key in self._seen:
            return
        depth = inside_depth(graph, nodes)
        if depth > self._max_depth:
            return
        self._seen.add(key)
        yield _Group(
            union,
            max(upstream.kind, downstream.kind),
            depth,
            ancestors,
            descendants,
            (upstream.before | downstream.before) & ~nodes,
            (upstream.after | downstream.after) & ~nodes,
        )


def _measured(sub_graph: SubGraph) -> _Group:
    graph, nodes = sub_graph.graph, sub_graph.nodes
    before = after = ancestors = descendants = 0
    for index in iterate_bits(nodes):
        ancestors |= graph.ancestors[index]
        descendants |= graph.descendants[index]
        if not graph.is_host(index):
            before |= graph.kernel_predecessors[index]
            after |= graph.kernel_successors[index]
    return _Group(sub_graph, sub_graph.kind, sub_graph.depth, ancestors, descendants, before & ~nodes, after & ~nodes)


class _Waiting:
    """Groups still to be looked at, smallest first; never more than there is room for, since no other can get in.

    A node that reads hundreds of branches makes more groups than anybody can count; what is kept and joined here is
    bounded all the same, and what comes out is what it would be if all were kept.

    Args:
        room: How many groups may still get in.

    Attributes:
        room: As given; the user's to count down.
        turned_away: How many did not get in; more would have come of those.
    """

    def __init__(self, room: int) -> None:
        self.room = room
        self.turned_away = 0
        self._count = 0
        self._ranked: list[tuple[int, int, int, _Group]] = []  # largest first; the number makes ranks unique

    def add(self, group: _Group) -> None:
        """Adds a group; the largest leaves if there is no room for it any more."""
        nodes = group.sub_graph.nodes
        bisect.insort(self._ranked, (-nodes.bit_count(), -nodes, -self._count, group))
        self._count += 1
        self._make_room()

    def smallest(self) -> _Group | None:
        """Takes out the smallest; None if there is none."""
        self._make_room()
        return self._ranked.pop()[-1] if self._ranked else None

    def admits(self, nodes: int) -> bool:
        """Whether it is worth to look at a group of these nodes: until one was turned away, every one is."""
        if not self.turned_away or len(self._ranked) < self.room:
            return True
        if self._ranked and (-nodes.bit_count(), -nodes) > self._ranked[0][:2]:
            return True
        self.turned_away += 1
        return False

    def largest_size(self) -> float:
        """Most nodes a group may have for `admits` to take it."""
        if not self.turned_away or not self._ranked or len(self._ranked) < self.room:
            return math.inf
        return -self._ranked[0][0]

    def _make_room(self) -> None:
        while len(self._ranked) > self.room:
            self._ranked.pop(0)
            self.turned_away += 1


def _key(sub_graph: SubGraph) -> _Key:
    parts = sub_graph.composites
    return sub_graph.nodes, sub_graph.label, tuple(sorted(parts, key=lambda part: part.nodes)) if parts else ()
