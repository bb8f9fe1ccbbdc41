"""What closures are held to: everything reached by joining whatever may be joined, again and again, from definitions.

Groups are sets of node indices with labelled parts, paths are walked, nothing is kept between rounds, and no code of
the closure, of its combiners or of sub-graphs is used.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator

from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.operators.op_kind import OpPatternKind
from collage_core.ir.values.content import constant_of

Nodes = frozenset[int]
Part = tuple[Nodes, str]
Found = tuple[Nodes, frozenset[Part]]
Joins = Callable[["Naive", list[Found]], Iterator[tuple[Found, ...]]]


class Naive:
    """Definitions over one graph without views."""

    def __init__(self, graph: DataflowGraph) -> None:
        assert not graph.host_mask
        self.graph = graph
        self.reads = {
            index: {graph.producer(v) for v in graph.operands[index] if v is not None} - {None}
            for index in range(len(graph))
        }

    def leads(self, start: int, end: int, allowed: Callable[[int], bool] = lambda index: True) -> bool:
        """Whether a path, whose inner nodes are allowed, leads from one node to another."""
        return any(
            index == start or (index is not None and allowed(index) and self.leads(start, index, allowed))
            for index in self.reads[end]
        )

    def kind(self, nodes: Nodes) -> OpPatternKind:
        return max(self.graph.kinds[index] for index in nodes)

    def is_constant(self, index: int) -> bool:
        values = [value for value in self.graph.operands[index] if value is not None and constant_of(value) is None]
        makers = [self.graph.producer(value) for value in values]
        return all(maker is not None and self.is_constant(maker) for maker in makers)

    def between(self, nodes: Nodes) -> Nodes:
        """Outside nodes on a way out and back in."""
        return frozenset(
            index
            for index in range(len(self.graph))
            if index not in nodes
            and any(self.leads(each, index) for each in nodes)
            and any(self.leads(index, each) for each in nodes)
        )

    def depth(self, nodes: Nodes) -> int:
        def longest(index: int) -> int:
            return 1 + max((longest(b) for b in self.reads[index] if b in nodes and b is not None), default=0)

        return max(longest(index) for index in nodes)

    def feeds(self, upstream: Nodes, downstream: Nodes) -> bool:
        return any(self.reads[index] & upstream for index in downstream)

    def anchors(self, nodes: Iterable[int], operators: set[str]) -> list[int]:
        return [
            index
            for index in nodes
            if self.graph.kinds[index] is OpPatternKind.OUT_ELEMENTWISE_FUSABLE
            and self.graph.nodes[index].op_type in operators
        ]


def by_kind(upstream: OpPatternKind, downstream: OpPatternKind) -> Joins:
    def joins(naive: Naive, found: list[Found]) -> Iterator[tuple[Found, ...]]:
        for one, other in itertools.permutations(found, 2):
            if naive.feeds(one[0], other[0]) and naive.kind(one[0]) <= upstream and naive.kind(other[0]) <= downstream:
                yield one, other

    return joins


def constants(naive: Naive, found: list[Found]) -> Iterator[tuple[Found, ...]]:
    for one, other in itertools.permutations(found, 2):
        if naive.feeds(one[0], other[0]) and all(map(naive.is_constant, one[0])):
            yield one, other


def with_all(operator: str, most: OpPatternKind, side_most: OpPatternKind, *, sources: bool) -> Joins:
    def joins(naive: Naive, found: list[Found]) -> Iterator[tuple[Found, ...]]:
        for centre in range(len(naive.graph)):
            if naive.graph.nodes[centre].op_type != operator:
                continue
            sides = naive.reads[centre] if sources else {index for index in naive.reads if centre in naive.reads[index]}
            beside = [each for each in found if each[0] & sides and naive.kind(each[0]) <= side_most]
            for holder in found:
                if centre not in holder[0] or naive.kind(holder[0]) > most:
                    continue
                for count in range(1, len(sides) + 1):
                    for chosen in itertools.combinations(beside, count):
                        if sides <= holder[0].union(*(each[0] for each in chosen)):
                            yield (holder, *chosen)

    return joins


def vertical(operators: set[str], between: OpPatternKind, start: list[Found], most: int = 2) -> Joins:
    alone: dict[int, Found] = {}
    for each in sorted(start, key=lambda each: sorted(label for _, label in each[1])):
        if len(each[0]) == 1:
            alone.setdefault(min(each[0]), each)

    def joins(naive: Naive, found: list[Found]) -> Iterator[tuple[Found, ...]]:
        def light(index: int) -> bool:
            return naive.graph.kinds[index] <= between

        for one, other in itertools.permutations(found, 2):
            if len(naive.anchors(one[0] | other[0], operators)) > most or one[0] & other[0]:
                continue
            firsts, seconds = naive.anchors(one[0], operators), naive.anchors(other[0], operators)
            if not any(naive.leads(a, b, light) for a in firsts for b in seconds):
                continue
            way = naive.between(one[0] | other[0])
            if all(light(index) and index in alone for index in way):
                yield (one, other, *(alone[index] for index in way))

    return joins


def horizontal(operators: set[str], most: int = 3) -> Joins:
    def joins(naive: Naive, found: list[Found]) -> Iterator[tuple[Found, ...]]:
        for one, other in itertools.combinations(found, 2):
            if len(naive.anchors(one[0] | other[0], operators)) > most:
                continue
            alike = any(
                _alike(naive.graph, a, b)
                for a in naive.anchors(one[0], operators)
                for b in naive.anchors(other[0], operators)
            )
            if alike and not any(naive.leads(a, b) or naive.leads(b, a) for a in one[0] for b in other[0]):
                yield one, other

    return joins


def _alike(graph: DataflowGraph, one: int, other: int) -> bool:
    a, b = graph.nodes[one], graph.nodes[other]
    if a is b or a.op_type != b.op_type or str(a.attributes) != str(b.attributes):
        return False
    pairs = zip(a.inputs, b.inputs, strict=False)
    return any(left is right and left is not None and constant_of(left) is None for left, right in pairs)


def closure(graph: DataflowGraph, start: list[Found], rules: Iterable[Joins], max_depth: int) -> set[Found]:
    """Joins all that may be joined until nothing is new."""
    naive = Naive(graph)
    found = set(start)
    while True:
        fresh = set()
        ordered = sorted(found, key=lambda each: (sorted(each[0]), sorted(label for _, label in each[1])))
        for rule in rules:
            for groups in rule(naive, ordered):
                nodes = frozenset[int]().union(*(group[0] for group in groups))
                if len(nodes) < sum(len(group[0]) for group in groups):
                    continue
                joined = nodes, frozenset[Part]().union(*(group[1] for group in groups))
                if joined not in found and not naive.between(nodes) and naive.depth(nodes) <= max_depth:
                    fresh.add(joined)
        if not fresh:
            return found
        found |= fresh
