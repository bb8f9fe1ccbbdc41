"""The nodes of a graph that need a kernel, numbered consecutively, with the data needed to join groups of them."""

from __future__ import annotations

from functools import cached_property

from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits, mask_of
from collage_core.ir.graph.walk import is_pure_node
from collage_core.ir.operators.op_kind import OpPatternKind
from collage_core.ir.values.content import constant_of

_NEAR = 1024
"""Descendants up to this distance are kept as one mask per node; further ones are found by traversal."""


class KernelGraph:
    """The kernel nodes of one graph; an edge is a value that one reads from another, directly or through views.

    Sets of nodes are pairs of a lowest number and a mask relative to it, so that the cost of a join does not
    depend on the size of the graph.

    Args:
        graph: The graph.

    Attributes:
        graph: The graph.
        indices: Index in the graph of each kernel node, ascending: a topological order.
        readers: Kernel nodes that read from each, ascending.
        sources: Kernel nodes that each reads from, ascending.
        kinds: Kind of each.
    """

    def __init__(self, graph: DataflowGraph) -> None:
        self.graph = graph
        self.indices: tuple[int, ...] = tuple(iterate_bits(graph.needs_kernel))
        self._number = {index: number for number, index in enumerate(self.indices)}
        self.readers: tuple[tuple[int, ...], ...] = tuple(
            tuple(self._number[after] for after in iterate_bits(graph.kernel_successors[index]))
            for index in self.indices
        )
        self.sources: tuple[tuple[int, ...], ...] = tuple(
            tuple(self._number[before] for before in iterate_bits(graph.kernel_predecessors[index]))
            for index in self.indices
        )
        self.kinds: tuple[OpPatternKind, ...] = tuple(graph.kinds[index] for index in self.indices)
        self._far: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.indices)

    def numbers(self, nodes: int) -> tuple[int, ...]:
        """Return the numbers of the kernel nodes in a mask of the graph, ascending."""
        return tuple(self._number[index] for index in iterate_bits(nodes & self.graph.needs_kernel))

    def mask(self, low: int, nodes: int) -> int:
        """Convert a set to a mask of the graph, without views."""
        return mask_of(self.indices[low + place] for place in iterate_bits(nodes))

    def completed(self, low: int, nodes: int) -> int:
        """Convert a set to a mask of the graph, with the views between its nodes."""
        return self.graph.completed(self.mask(low, nodes))

    @cached_property
    def _near(self) -> tuple[int, ...]:
        window = (1 << _NEAR) - 1
        found = [0] * len(self.indices)
        for number in reversed(range(len(self.indices))):
            mask = 0
            for reader in self.readers[number]:
                mask |= (found[reader] | 1) << (reader - number)
            found[number] = mask & window
        return tuple(found)

    def reached(self, number: int, width: int) -> int:
        """Return the nodes that depend on a node, as a mask relative to it.

        The mask contains at least the nodes less than `width` ahead.
        """
        if width <= _NEAR:
            return self._near[number]
        known = self._far.get(number)
        if known is None:
            known, waiting = 0, list(self.readers[number])
            while waiting:
                reader = waiting.pop()
                if not known >> (reader - number) & 1:
                    known |= 1 << (reader - number)
                    waiting.extend(self.readers[reader])
            self._far[number] = known
        return known

    def after(self, low: int, nodes: int) -> int:
        """Return the nodes outside a set that read from it, relative to its lowest node."""
        mask = 0
        for place in iterate_bits(nodes):
            for reader in self.readers[low + place]:
                mask |= 1 << (reader - low)
        return mask & ~nodes

    def is_convex(self, low: int, nodes: int, after: int) -> bool:
        """Return whether a set is convex: no path leaves it and re-enters it.

        Every such path passes a node that reads from the set and comes before its last node.

        Args:
            low: The lowest node of the set.
            nodes: The set, relative to `low`.
            after: Result of `after` for the set.
        """
        width = nodes.bit_length()
        return not any(
            self.reached(low + place, width - place) & nodes >> place
            for place in iterate_bits(after & ((1 << width) - 1))
        )

    def between(self, low: int, nodes: int) -> int:
        """Return the nodes on paths that leave a set and re-enter it, relative to `low`."""
        width = nodes.bit_length()
        after = 0
        for place in iterate_bits(nodes):
            after |= self.reached(low + place, width - place) << place
        around = after & ((1 << width) - 1) & ~nodes
        return mask_of(
            place for place in iterate_bits(around) if self.reached(low + place, width - place) & nodes >> place
        )

    @cached_property
    def direct_readers(self) -> tuple[tuple[int, ...], ...]:
        """Readers of each node that it does not also reach through another: the edges of the transitive reduction.

        If one set reads from another and their union is convex, one of these edges connects them: all paths between two
        nodes of a convex set are inside, including the longest.
        """
        return tuple(
            tuple(
                reader
                for reader in readers
                if not any(
                    other < reader and self.reached(other, reader - other + 1) >> (reader - other) & 1
                    for other in readers
                )
            )
            for readers in self.readers
        )

    @cached_property
    def direct_sources(self) -> tuple[tuple[int, ...], ...]:
        """The inverse of `direct_readers`."""
        found: list[list[int]] = [[] for _ in self.indices]
        for number, readers in enumerate(self.direct_readers):
            for reader in readers:
                found[reader].append(number)
        return tuple(map(tuple, found))

    @cached_property
    def constants(self) -> frozenset[int]:
        """Deterministic nodes computed from constants alone."""
        made: set[int] = set()
        for index, node in enumerate(self.graph.nodes):
            read = [value for value in self.graph.operands[index] if value is not None and constant_of(value) is None]
            if is_pure_node(node) and all(self.graph.producer(value) in made for value in read):
                made.add(index)
        return frozenset(self._number[index] for index in made if index in self._number)
