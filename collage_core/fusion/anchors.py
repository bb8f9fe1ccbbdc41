"""Combine several anchors into one kernel: in sequence, or in parallel over the same input."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import onnx_ir

from collage_core.fusion.combiners import Combiner, Finder, KnownGroups
from collage_core.fusion.groups import Group, inside_numbers
from collage_core.fusion.kernel_graph import KernelGraph
from collage_core.ir.graph.masks import iterate_bits
from collage_core.ir.operators.op_kind import OpPatternKind
from collage_core.ir.values.content import constant_of

_K = OpPatternKind


@dataclasses.dataclass(frozen=True, slots=True)
class VerticalCombiner(Combiner):
    """Joins two groups with anchors, one of which feeds the other, together with the light work between them.

    So a convolution joins the one before it, and the two products of attention join over scale, mask and
    softmax, which need not be in either group. Each node between must be one of the groups the closure started
    from.

    Attributes:
        first: Accepted operators of the upstream anchor; None for any.
        second: Accepted operators of the downstream anchor; None for any.
        between: Largest kind of the nodes between.
        most: Maximum number of anchors in one kernel.
    """

    first: frozenset[str] | None = None
    second: frozenset[str] | None = None
    between: OpPatternKind = _K.REDUCTION
    most: int = 2

    def finder(self, known: KnownGroups) -> Finder:
        """Create a finder that knows which anchors feed each other directly or through light operators only."""
        return _VerticalFinder(known, self)


@dataclasses.dataclass(frozen=True, slots=True)
class HorizontalCombiner(Combiner):
    """Joins groups with alike anchors that read the same value, if neither group depends on the other.

    Anchors are alike if they have the same operator and equal attributes, and read the value as the same
    operand: the products that compute query, key and value, or the branches of an inception block. The result
    has several exits.

    Attributes:
        operators: Accepted operators of the anchors; None for any.
        most: Maximum number of anchors in one kernel.
    """

    operators: frozenset[str] | None = None
    most: int = 3

    def finder(self, known: KnownGroups) -> Finder:
        """Create a finder that knows which anchors are alike."""
        return _HorizontalFinder(known, self)


_PRODUCTS = frozenset({"MatMul", "Gemm"})

CONVOLUTION_PAIRS = VerticalCombiner(frozenset({"Conv"}), frozenset({"Conv"}), _K.BROADCAST)
"""Convolutions with normalisation and activation between them."""

PRODUCT_PAIRS = VerticalCombiner(_PRODUCTS, _PRODUCTS)
"""Matrix products: of two dense layers, or of attention with its softmax."""

PARALLEL_PRODUCTS = HorizontalCombiner(_PRODUCTS)
"""Query, key and value projections: any two of them, and all three."""

ANCHOR_PRIMITIVES: tuple[Combiner, ...] = (CONVOLUTION_PAIRS, PRODUCT_PAIRS, PARALLEL_PRODUCTS)
"""Two anchors in sequence and three in parallel: extra primitives for libraries with such kernels."""


class _AnchorFinder(Finder):
    """Finds pairs of groups through pairs of anchors."""

    def __init__(self, known: KnownGroups, most: int) -> None:
        self._known = known
        self._most = most

    def _partners(self, group: Group, anchor: int) -> Iterator[Group]:
        """Yield known groups disjoint from `group` that hold an anchor, within the limit on anchors per kernel."""
        if group.holds(anchor):
            return
        for other in self._known.holding(anchor, group.size):
            if len(other.anchors) + len(group.anchors) <= self._most and not other.overlaps(group):
                yield other


class _VerticalFinder(_AnchorFinder):
    def __init__(self, known: KnownGroups, combiner: VerticalCombiner) -> None:
        super().__init__(known, combiner.most)
        self._between = combiner.between
        kernels = known.kernels
        self._after: dict[int, list[int]] = {}
        self._before: dict[int, list[int]] = {}
        for anchor in _anchors(kernels, combiner.first):
            for other in self._fed(anchor):
                if _is_one_of(kernels, other, combiner.second):
                    self._after.setdefault(anchor, []).append(other)
                    self._before.setdefault(other, []).append(anchor)

    def _fed(self, anchor: int) -> list[int]:
        """Return the anchors that an anchor feeds, directly or through light operators, within the depth limit."""
        kernels, found = self._known.kernels, set[int]()
        seen, reached = {anchor}, [anchor]
        for _ in range(self._known.max_depth - 1):
            fresh = {reader for number in reached for reader in kernels.readers[number]} - seen
            seen |= fresh
            found.update(number for number in fresh if kernels.kinds[number] is _K.OUT_ELEMENTWISE_FUSABLE)
            reached = [number for number in fresh if self._is_light(number)]
        return sorted(found)

    def _is_light(self, number: int) -> bool:
        kind = self._known.kernels.kinds[number]
        return kind <= self._between and kind is not _K.OUT_ELEMENTWISE_FUSABLE

    def joins(self, group: Group) -> Iterator[tuple[Group, ...]]:
        """Yield the group with each known group that one of its anchors feeds or is fed by.

        The groups of the nodes between the two are included.
        """
        for anchor in group.anchors:
            for pairs in (self._after, self._before):
                for fed in pairs.get(anchor, ()):
                    for other in self._partners(group, fed):
                        between = self._filling(group, other)
                        if between is not None:
                            yield (group, other, *between)

    def _filling(self, group: Group, other: Group) -> list[Group] | None:
        """Return the groups of the nodes between two groups, node by node.

        None if one of these nodes is not light or has no group of its own.
        """
        kernels, singles = self._known.kernels, self._known.singles
        low = min(group.low, other.low)
        nodes = group.nodes << (group.low - low) | other.nodes << (other.low - low)
        between = [low + place for place in iterate_bits(kernels.between(low, nodes))]
        if all(self._is_light(number) and number in singles for number in between):
            return [singles[number] for number in between]
        return None


class _HorizontalFinder(_AnchorFinder):
    def __init__(self, known: KnownGroups, combiner: HorizontalCombiner) -> None:
        super().__init__(known, combiner.most)
        kernels = known.kernels
        alike: dict[object, list[int]] = {}
        for anchor in _anchors(kernels, combiner.operators):
            node = kernels.graph.nodes[kernels.indices[anchor]]
            for place, value in enumerate(node.inputs):
                if value is not None and constant_of(value) is None:
                    alike.setdefault((_form(node), place, value), []).append(anchor)
        self._beside: dict[int, list[int]] = {}
        for anchors in alike.values():
            for anchor in anchors:
                self._beside.setdefault(anchor, []).extend(other for other in anchors if other != anchor)

    def joins(self, group: Group) -> Iterator[tuple[Group, ...]]:
        """Yield the group with each independent known group that has a like anchor."""
        for anchor in group.anchors:
            for beside in self._beside.get(anchor, ()):
                for other in self._partners(group, beside):
                    if not self._waits(group, other) and not self._waits(other, group):
                        yield group, other

    def _waits(self, group: Group, other: Group) -> bool:
        """Return whether `group` depends on `other`, directly or indirectly."""
        kernels = self._known.kernels
        last = group.low + group.nodes.bit_length()
        for number in inside_numbers(other):
            shift = group.low - number
            after = kernels.reached(number, last - number) if last > number else 0
            if (after >> shift if shift >= 0 else after << -shift) & group.nodes:
                return True
        return False


def _anchors(kernels: KernelGraph, operators: frozenset[str] | None) -> Iterator[int]:
    for number, kind in enumerate(kernels.kinds):
        if kind is _K.OUT_ELEMENTWISE_FUSABLE and _is_one_of(kernels, number, operators):
            yield number


def _is_one_of(kernels: KernelGraph, number: int, operators: frozenset[str] | None) -> bool:
    return operators is None or kernels.graph.nodes[kernels.indices[number]].op_type in operators


def _form(node: onnx_ir.Node) -> object:
    """Return a node's operator and attributes as a key; nodes with equal keys compute the same function."""
    attributes = sorted((attribute.name, str(attribute.value)) for attribute in node.attributes.values())
    return node.domain, node.op_type, tuple(attributes)
