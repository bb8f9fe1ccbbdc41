"""Combiners, the primitives of `CombineByPrimitivesRule`."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Iterator

from collage_core.fusion.groups import Edge, Group
from collage_core.fusion.kernel_graph import KernelGraph
from collage_core.ir.operators.op_kind import OpPatternKind

_K = OpPatternKind


class KnownGroups:
    """The groups that a closure has processed so far.

    Args:
        kernels: The kernel nodes of the graph.
        singles: By kernel node, the initial group of that node alone.
        max_depth: Deeper groups are not made.
        largest_size: Returns the maximum number of nodes of a group; decreases as a bound is approached.
        only_singles: Whether all initial groups have one node, and only adjacent groups are joined.

    Attributes:
        turned_away: Number of joins skipped because the result would have exceeded `largest_size`.
    """

    def __init__(
        self,
        kernels: KernelGraph,
        singles: dict[int, Group],
        max_depth: int,
        largest_size: Callable[[], float],
        *,
        only_singles: bool = False,
    ) -> None:
        self.kernels = kernels
        self.singles = singles
        self.max_depth = max_depth
        self.largest_size = largest_size
        self.only_singles = only_singles
        self.turned_away = 0
        self._holding: list[list[Group]] = [[] for _ in range(len(kernels))]

    def add(self, group: Group) -> None:
        """Add a group; groups added earlier are not larger."""
        for number in group.heads:
            self._holding[number].append(group)

    def is_held(self, number: int) -> bool:
        """Return whether some known group holds a node."""
        return bool(self._holding[number])

    def holding(self, number: int, beside: int = 0) -> Iterator[Group]:
        """Yield the groups that hold a node, smallest first, that can still be joined with `beside` more nodes."""
        most = self.largest_size() - beside
        for group in self._holding[number]:
            if group.size > most:
                self.turned_away += 1
                return
            yield group


class Finder(abc.ABC):
    """Finds the joins of one combiner in one graph."""

    @abc.abstractmethod
    def joins(self, group: Group) -> Iterator[tuple[Group, ...]]:
        """Yield all sets of groups that may be joined together with a new one; an empty set only counts as a try.

        Called once per group. The other groups in a set were passed in earlier calls; to find all sets, yield each
        set when its last group arrives, whichever that is. Sets may overlap, repeat, or be invalid as kernels; they are
        checked later.
        """

    def add(self, group: Group) -> None:  # noqa: B027  most need no index of their own
        """Add a group, after `joins` was called for it."""


class Combiner(abc.ABC):
    """Decides which groups may be joined.

    A value: it keeps no state between graphs, is hashable, and equals only what joins the same groups.
    """

    @abc.abstractmethod
    def finder(self, known: KnownGroups) -> Finder:
        """Create a finder of joins in one graph."""


class TouchingCombiner(Combiner):
    """Joins a group to a reader of its output, depending on the two groups."""

    @abc.abstractmethod
    def joins(self, upstream: OpPatternKind, downstream: OpPatternKind, *, is_constant: bool = False) -> bool:
        """Return whether two groups may be joined.

        Args:
            upstream: Kind of the group that is read.
            downstream: Kind of the group that reads.
            is_constant: Whether the group that is read is made of constants alone.
        """

    def finder(self, known: KnownGroups) -> Finder:
        """Create a finder that indexes groups by the edges across their borders."""
        return TouchingFinder(known, (self,))


@dataclasses.dataclass(frozen=True, slots=True)
class KindCombiner(TouchingCombiner):
    """Joins a group to a reader of its output, if both are of small enough kind.

    Attributes:
        upstream: Largest kind of the group that is read.
        downstream: Largest kind of the group that reads.
    """

    upstream: OpPatternKind
    downstream: OpPatternKind

    def joins(self, upstream: OpPatternKind, downstream: OpPatternKind, *, is_constant: bool = False) -> bool:
        """Return whether groups of these kinds may be joined."""
        return upstream <= self.upstream and downstream <= self.downstream


@dataclasses.dataclass(frozen=True, slots=True)
class ConstantsCombiner(TouchingCombiner):
    """Joins groups computed from constants alone to their readers: a toolchain may compute them at build time.

    `prepare` folds such nodes where it can; large tensors and weights in quantised form remain.

    Attributes:
        downstream: Largest kind of the group that reads.
    """

    downstream: OpPatternKind = _K.OPAQUE

    def joins(self, upstream: OpPatternKind, downstream: OpPatternKind, *, is_constant: bool = False) -> bool:
        """Return whether the group that is read is constant, and the reader's kind is within the limit."""
        return is_constant and downstream <= self.downstream


DEFAULT_PRIMITIVES: tuple[Combiner, ...] = (
    KindCombiner(_K.OUT_ELEMENTWISE_FUSABLE, _K.BROADCAST),
    KindCombiner(_K.BROADCAST, _K.REDUCTION),
    KindCombiner(_K.INJECTIVE, _K.INJECTIVE),
)
"""Joins made by classic fusion passes.

An anchor with its element-wise epilogue, element-wise work with the reduction that reads it, and index work with
index work. A Concat is injective, so it joins with any subset of its injective producers.
"""

JOIN_ANYTHING: tuple[Combiner, ...] = (KindCombiner(_K.OPAQUE, _K.OPAQUE),)
"""Joins any adjacent groups: for toolchains that compile any group of operators they support."""


class TouchingFinder(Finder):
    """Finds pairs of adjacent groups.

    Groups are indexed by each edge across their border, and for each edge by kind and by the longest path that
    would go through it. So few examined pairs overlap, are too deep or may not be joined.

    If any adjacent groups may be joined and all initial groups have one node, one group of each pair is a
    single node. This still reaches every connected convex set: such a set has a node that reads from none of
    the others or is read by none, and whose removal leaves the rest connected and convex. (Each outermost block
    of the set, cut at its articulation nodes, has a first and a last node, and only one of these is an
    articulation node.)

    Args:
        known: Provides the limits.
        combiners: Any of them may join a pair.
    """

    def __init__(self, known: KnownGroups, combiners: tuple[TouchingCombiner, ...]) -> None:
        self._known = known
        traits = [(kind, is_constant) for kind in OpPatternKind for is_constant in (False, True)]
        self._allowed = {
            (up, down): any(each.joins(up[0], down[0], is_constant=up[1]) for each in combiners)
            for up in traits
            for down in traits
        }
        self._one_by_one = known.only_singles and all(self._allowed.values())
        self._above: dict[Edge, dict[tuple[OpPatternKind, bool, int], list[Group]]] = {}
        self._below: dict[Edge, dict[tuple[OpPatternKind, bool, int], list[Group]]] = {}

    def joins(self, group: Group) -> Iterator[tuple[Group, ...]]:
        """Yield the group with each known group that reads from it, and with each it reads from."""
        allowed, known = self._allowed, self._known
        trait = (group.kind, group.is_constant)
        most = known.largest_size() - group.size
        for edge in group.leaving:
            room = known.max_depth - group.heads[edge[0]]
            for (kind, is_constant, tail), others in self._below.get(edge, _NOTHING).items():
                if tail <= room and allowed[trait, (kind, is_constant)]:
                    for other in others:
                        if other.size > most:
                            known.turned_away += 1
                            break
                        yield group, other
        for edge in group.entering:
            room = known.max_depth - group.tails[edge[1]]
            for (kind, is_constant, head), others in self._above.get(edge, _NOTHING).items():
                if head <= room and allowed[(kind, is_constant), trait]:
                    for other in others:
                        if other.size > most:
                            known.turned_away += 1
                            break
                        yield other, group

    def add(self, group: Group) -> None:
        """Index a group by the edges across its border."""
        if self._one_by_one and group.size > 1:
            return
        kind, is_constant = group.kind, group.is_constant
        for edge in group.leaving:
            key = (kind, is_constant, group.heads[edge[0]])
            self._above.setdefault(edge, {}).setdefault(key, []).append(group)
        for edge in group.entering:
            key = (kind, is_constant, group.tails[edge[1]])
            self._below.setdefault(edge, {}).setdefault(key, []).append(group)


_NOTHING: dict[tuple[OpPatternKind, bool, int], list[Group]] = {}
