"""Groups of kernel nodes during joining."""

from __future__ import annotations

import dataclasses

from collage_core.fusion.kernel_graph import KernelGraph
from collage_core.fusion.sub_graph import SubGraph
from collage_core.ir.graph.canonical import Composite
from collage_core.ir.graph.masks import iterate_bits, mask_of
from collage_core.ir.operators.op_kind import OpPatternKind

Edge = tuple[int, int]
"""A kernel node and one of its readers."""


# Not frozen: one is made for every join that is tried, and the borders are added to those that are kept.
@dataclasses.dataclass(slots=True, eq=False)
class Group:
    """A set of kernel nodes that may become one kernel.

    Attributes:
        low: Its lowest node.
        nodes: Mask of its nodes, relative to `low`.
        size: Number of its nodes.
        kind: The largest kind inside.
        is_constant: Whether it is computed from constants alone.
        anchors: Its anchors.
        after: Mask of the nodes outside that read from it, relative to `low`.
        depth: Upper bound on the number of nodes on its longest inside path.
        parts: Labelled parts that it contributes to a join.
        given: The initial sub-graph; None for a joined group.
        heads: Nodes on the longest inside path to each of its nodes; empty until `add_borders`.
        tails: Nodes on the longest inside path from each of its nodes.
        entering: Incoming edges by which it can be joined.
        leaving: Outgoing edges by which it can be joined.
    """

    low: int
    nodes: int
    size: int
    kind: OpPatternKind
    is_constant: bool
    anchors: tuple[int, ...]
    after: int
    depth: int
    parts: tuple[Composite, ...]
    given: SubGraph | None = None
    heads: dict[int, int] = dataclasses.field(default_factory=dict)
    tails: dict[int, int] = dataclasses.field(default_factory=dict)
    entering: tuple[Edge, ...] = ()
    leaving: tuple[Edge, ...] = ()

    @property
    def rank(self) -> tuple[object, ...]:
        """Unique key that orders groups of equal size for processing."""
        label = (self.given.label, self.given.attributes) if self.given is not None else ("", ())
        return self.low, self.nodes, label, tuple(map(_rank, self.parts))

    def holds(self, number: int) -> bool:
        """Return whether the group contains a kernel node."""
        return number >= self.low and bool(self.nodes >> (number - self.low) & 1)

    def overlaps(self, other: Group) -> bool:
        """Return whether two groups share a node."""
        shift = other.low - self.low
        return bool(self.nodes & other.nodes << shift if shift >= 0 else other.nodes & self.nodes << -shift)

    def add_borders(self, kernels: KernelGraph) -> None:
        """Compute the paths inside the group and the edges across its border."""
        numbers = inside_numbers(self)
        self.heads = heads = inside_heads(kernels, numbers)
        self.depth = max(heads.values())
        tails = self.tails
        for number in reversed(numbers):
            longest = 0
            for reader in kernels.readers[number]:
                if reader in heads and tails[reader] > longest:
                    longest = tails[reader]
            tails[number] = longest + 1
        direct_readers, direct_sources = kernels.direct_readers, kernels.direct_sources
        self.leaving = tuple((n, reader) for n in numbers for reader in direct_readers[n] if reader not in heads)
        self.entering = tuple((source, n) for n in numbers for source in direct_sources[n] if source not in heads)


def inside_numbers(group: Group) -> list[int]:
    """Return the nodes of a group, ascending."""
    return [group.low + place for place in iterate_bits(group.nodes)]


def inside_heads(kernels: KernelGraph, numbers: list[int]) -> dict[int, int]:
    """Compute the number of nodes on the longest path inside a set to each of its nodes.

    Args:
        kernels: Graph of the kernel nodes.
        numbers: The set, ascending.
    """
    heads: dict[int, int] = {}
    for number in numbers:
        longest = 0
        for source in kernels.sources[number]:
            above = heads.get(source, 0)
            if above > longest:
                longest = above
        heads[number] = longest + 1
    return heads


def started(kernels: KernelGraph, sub_graph: SubGraph) -> Group:
    """Create the group of a sub-graph that needs a kernel."""
    numbers = kernels.numbers(sub_graph.nodes)
    low = numbers[0]
    nodes = mask_of(number - low for number in numbers)
    return Group(
        low=low,
        nodes=nodes,
        size=len(numbers),
        kind=max(kernels.kinds[number] for number in numbers),
        is_constant=all(number in kernels.constants for number in numbers),
        anchors=tuple(n for n in numbers if kernels.kinds[n] is OpPatternKind.OUT_ELEMENTWISE_FUSABLE),
        after=kernels.after(low, nodes),
        depth=len(numbers),
        parts=tuple(sorted(sub_graph.as_parts(), key=_place)),
        given=sub_graph,
    )


def united(groups: tuple[Group, ...], low: int, nodes: int, parts: tuple[Composite, ...]) -> Group:
    """Unite several disjoint groups into one, without checking that it can be a kernel.

    Args:
        groups: The groups.
        low: Their lowest node.
        nodes: Their nodes, relative to `low`.
        parts: Their `joined_parts`.
    """
    kind, after, depth = OpPatternKind.ELEMENTWISE, 0, 0
    is_constant = True
    anchors: tuple[int, ...] = ()
    for group in groups:
        kind = max(kind, group.kind)
        after |= group.after << (group.low - low)
        depth += group.depth
        is_constant = is_constant and group.is_constant
        anchors += group.anchors
    return Group(low, nodes, nodes.bit_count(), kind, is_constant, anchors, after & ~nodes, depth, parts)


def joined_parts(groups: tuple[Group, ...]) -> tuple[Composite, ...]:
    """Return the labelled parts of several groups, in the graph's order."""
    parts = tuple(part for group in groups for part in group.parts)
    return tuple(sorted(parts, key=_place)) if len(parts) > 1 else parts


def _place(part: Composite) -> int:
    return part.nodes


def _rank(part: Composite) -> tuple[int, str, tuple[tuple[str, str], ...], str]:
    return part.nodes, part.label, part.attributes, repr(part.parts) if part.parts else ""
