"""The nodes of a graph that need a kernel, by consecutive numbers, and what joining groups of them has to know."""

from __future__ import annotations

from functools import cached_property

from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits, mask_of
from collage_core.ir.graph.walk import is_pure_node
from collage_core.ir.operators.op_kind import OpPatternKind
from collage_core.ir.values.content import constant_of

_NEAR = 1024
"""Descendants so many nodes ahead are kept as one mask per node; what is further off is walked to."""


class KernelGraph:
    """The kernel nodes of one graph; an edge stands for a value that one reads from another, also through views.

    Sets of nodes are pairs of a lowest number and a mask relative to it, so that what a join costs does not depend on
    how long the graph is.

    Args:
        graph: The graph.

    Attributes:
        graph: That graph.
        indices: Index in the graph of each kernel node, ascending: a topological order.
        readers: Kernel nodes that read from each, ascending.
        sources: Kernel nodes each reads from, ascending.
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
        """Numbers of the kernel nodes of a mask of the graph, ascending."""
        return tuple(self._number[index] for index in iterate_bits(nodes & self.graph.needs_kernel))

    def mask(self, low: int, nodes: int) -> int:
        """A set as a mask of the graph, without views."""
        return mask_of(self.indices[low + place] for place in iterate_bits(nodes))

    def completed(self, low: int, nodes: int) -> int:
        """A set as a mask of the graph, with the views between its nodes."""
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
        """Nodes that depend on one, relative to it, at least those less than `width` ahead."""
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
        """Nodes outside of a set that read from it, relative to its lowest."""
        mask = 0
        for place in iterate_bits(nodes):
            for reader in self.readers[low + place]:
                mask |= 1 << (reader - low)
        return mask & ~nodes

    def is_convex(self, low: int, nodes: int, after: int) -> bool:
        """Whether nothing flows out of a set and back in.

        Every way back passes a node that reads from the set and comes before its last one.

        Args:
            low: The lowest node of the set.
            nodes: The set, relative to `low`.
            after: Its `after`.
        """
        width = nodes.bit_length()
        return not any(
            self.reached(low + place, width - place) & nodes >> place
            for place in iterate_bits(after & ((1 << width) - 1))
        )

    def between(self, low: int, nodes: int) -> int:
        """Nodes outside of a set that lie on a way out of it and back in, relative to `low`."""
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
        """Readers of each node but those it also reaches by way of another: the edges of the transitive reduction.

        Where one set reads from another and both together are convex, an edge of these goes from one to the other: all
        ways between two nodes of a convex set are inside, the longest too.
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
        """Nodes made of constants alone, and always the same."""
        made: set[int] = set()
        for index, node in enumerate(self.graph.nodes):
            read = [value for value in self.graph.operands[index] if value is not None and constant_of(value) is None]
            if is_pure_node(node) and all(self.graph.producer(value) in made for value in read):
                made.add(index)
        return frozenset(self._number[index] for index in made if index in self._number)
