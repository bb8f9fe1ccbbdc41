"""Compute the closure of a set of groups under combiners; shared by all combiners."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from collage_core.fusion.combiners import Combiner, Finder, KnownGroups, TouchingCombiner, TouchingFinder
from collage_core.fusion.groups import Group, inside_heads, inside_numbers, joined_parts, started, united
from collage_core.fusion.kernel_graph import KernelGraph
from collage_core.fusion.sub_graph import SubGraph
from collage_core.ir.graph.dataflow import DataflowGraph

JOINS_PER_GROUP = 200
"""Average number of joins tried per group that may be kept. Models need up to thirty, whatever is joined."""

JOINS_AT_ONCE = 20_000
"""Maximum number of joins that one combiner tries per new group.

A Concat of dozens of branches has more combinations than can be tried, and must not use up the joins of the rest of
the graph.
"""


class Closure:
    """The groups that can be reached from a set of groups by joining, smallest first.

    Groups are processed in order of size, and a join is larger than its parts. So each group is complete when it is
    processed, the order of the initial groups does not matter, and a limit keeps a prefix of the unlimited result.

    Args:
        graph: The graph.
        combiners: Combiners to apply.
        max_depth: Deeper groups are not made; initial groups may be deeper.
        forbidden: Mask of the nodes that no group may hold, including views.

    Attributes:
        sub_graphs: The groups found, after `run`.
        tried: Number of joins tried.
        exhausted: Whether `JOINS_PER_GROUP` or `JOINS_AT_ONCE` cut something off.
    """

    def __init__(self, graph: DataflowGraph, combiners: Sequence[Combiner], max_depth: int, forbidden: int = 0) -> None:
        self._kernels = KernelGraph(graph)
        self._graph = graph
        self._combiners = combiners
        self._max_depth = max_depth
        self._forbidden = forbidden
        self._barriers = forbidden & graph.host_mask
        self._seen: set[object] = set()
        self.sub_graphs: list[SubGraph] = []
        self.tried = 0
        self.exhausted = False

    def run(self, start: Iterable[SubGraph], limit: int) -> int:
        """Join groups until no new group is found or `limit` groups are found.

        Returns:
            Number of groups or joins that were dropped; further groups could have been built from those.
        """
        waiting = _Waiting(limit)
        singles, only_singles = self._start(start, waiting)
        only_singles = only_singles and all(isinstance(each, TouchingCombiner) for each in self._combiners)
        known = KnownGroups(self._kernels, singles, self._max_depth, waiting.largest_size, only_singles=only_singles)
        finders = self._finders(known)
        most = limit * JOINS_PER_GROUP
        while (group := waiting.smallest()) is not None:
            group.add_borders(self._kernels)
            for finder in finders:
                for number, groups in enumerate(finder.joins(group)):
                    if self.tried >= most or number >= JOINS_AT_ONCE:
                        self.exhausted = True
                        break
                    self.tried += 1
                    if not groups:
                        continue
                    joined = self._joined(groups, waiting)
                    if joined is not None:
                        waiting.add(joined)
            for finder in finders:
                finder.add(group)
            known.add(group)
            self.sub_graphs.append(self._sub_graph(group))
        return waiting.turned_away + known.turned_away + self.exhausted

    def _start(self, start: Iterable[SubGraph], waiting: _Waiting) -> tuple[dict[int, Group], bool]:
        """Queue the initial groups.

        Returns:
            The groups of one node, preferring unlabelled ones, and whether all initial groups have one node.
        """
        singles: dict[int, Group] = {}
        only_singles = True
        for sub_graph in start:
            completed = sub_graph.completed()
            if completed is None or completed.nodes & self._forbidden:
                continue
            group = started(self._kernels, completed)
            if group.rank in self._seen:
                continue
            self._seen.add(group.rank)
            waiting.add(group)
            if group.size > 1:
                only_singles = False
            elif group.low not in singles or _plainer(group, singles[group.low]):
                singles[group.low] = group
        return singles, only_singles

    def _finders(self, known: KnownGroups) -> list[Finder]:
        touching = tuple(each for each in self._combiners if isinstance(each, TouchingCombiner))
        others = [each.finder(known) for each in self._combiners if not isinstance(each, TouchingCombiner)]
        return [TouchingFinder(known, touching), *others] if touching else others

    def _joined(self, groups: tuple[Group, ...], waiting: _Waiting) -> Group | None:
        """Join the groups into one; return None if it is known already or cannot be a kernel."""
        low = min([group.low for group in groups])
        nodes = 0
        for group in groups:
            moved = group.nodes << (group.low - low)
            if nodes & moved:
                return None
            nodes |= moved
        if not waiting.admits(low, nodes):
            return None
        parts = joined_parts(groups)
        key = (low, nodes, parts)
        if key in self._seen:
            return None
        self._seen.add(key)
        joined = united(groups, low, nodes, parts)
        kernels = self._kernels
        if not kernels.is_convex(joined.low, joined.nodes, joined.after):
            return None
        if joined.depth > self._max_depth:
            heads = inside_heads(kernels, inside_numbers(joined))
            joined.depth = max(heads.values())
            if joined.depth > self._max_depth:
                return None
        if self._barriers and kernels.completed(joined.low, joined.nodes) & self._barriers:
            return None
        return joined

    def _sub_graph(self, group: Group) -> SubGraph:
        if group.given is not None:
            return group.given
        return SubGraph(self._graph, self._kernels.completed(group.low, group.nodes), "", group.parts)


def _plainer(one: Group, other: Group) -> bool:
    return (bool(one.parts), one.rank) < (bool(other.parts), other.rank)


class _Waiting:
    """Queue of groups to process, smallest first, limited to about the number of groups that can still be accepted.

    A node that reads hundreds of branches yields far too many groups to enumerate. The queue and the joins are
    bounded, and the result is the same as with an unbounded queue.

    Args:
        room: Number of groups that can still be accepted.

    Attributes:
        turned_away: Number of groups rejected.
    """

    def __init__(self, room: int) -> None:
        self.turned_away = 0
        self._room = room
        self._count = 0
        self._by_size: dict[int, list[Group]] = {}
        self._current: list[Group] = []  # of one size, last first
        self._largest: float = math.inf
        self._last = (math.inf, 0)  # of the largest size, those after this one do not get in

    def largest_size(self) -> float:
        """Return the size limit of a group that may still be queued, in nodes."""
        return self._largest

    def admits(self, low: int, nodes: int) -> bool:
        """Return whether a group of these nodes may be queued."""
        size = nodes.bit_count()
        if size < self._largest or (size == self._largest and (low, nodes) <= self._last):
            return True
        self.turned_away += 1
        return False

    def add(self, group: Group) -> None:
        """Queue a group; drop the largest groups if the queue is full."""
        if not self.admits(group.low, group.nodes):
            return
        self._by_size.setdefault(group.size, []).append(group)
        self._count += 1
        if self._count >= self._room:
            self._make_room()

    def smallest(self) -> Group | None:
        """Pop the smallest group, of equal sizes the first by rank; return None if the queue is empty."""
        if not self._current:
            if not self._by_size or not self._room:
                self.turned_away += self._count
                return None
            size = min(self._by_size)
            self._current = self._ranked(self._by_size.pop(size), self._room)
            self._current.reverse()
        self._room -= 1
        self._count -= 1
        return self._current.pop()

    def _make_room(self) -> None:
        while self._by_size:
            size = max(self._by_size)
            largest = self._by_size[size]
            surplus = self._count - self._room
            if surplus < len(largest):
                self._lower(size)
                if 2 * surplus > len(largest):  # not for each one that comes: sorting is dear
                    self._by_size[size] = kept = self._ranked(largest, len(largest) - surplus)
                    self._last = kept[-1].low, kept[-1].nodes
                return
            del self._by_size[size]
            self._count -= len(largest)
            self.turned_away += len(largest)
            self._lower(size - 1)

    def _lower(self, size: int) -> None:
        if size < self._largest:
            self._largest, self._last = size, (math.inf, 0)

    def _ranked(self, groups: list[Group], most: int) -> list[Group]:
        groups.sort(key=lambda group: group.rank)
        surplus = max(0, len(groups) - most)
        self._count -= surplus
        self.turned_away += surplus
        return groups[: len(groups) - surplus]
