"""What may be joined: the primitives of `CombineByPrimitivesRule`."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Iterator

from collage_core.fusion.groups import Edge, Group
from collage_core.fusion.kernel_graph import KernelGraph
from collage_core.ir.operators.op_kind import OpPatternKind

_K = OpPatternKind


class KnownGroups:
    """The groups a closure has looked at so far.

    Args:
        kernels: Where they are.
        singles: By kernel node, the group of that node alone that the closure started from.
        max_depth: Deeper groups are not made.
        largest_size: Answers how many nodes a group may have at most; fewer and fewer as a bound draws near.
        only_singles: Whether the closure started from groups of one node only, and joins only what touches.

    Attributes:
        turned_away: How often something was not joined because it would have been larger than that.
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
        """Takes in a group; those before are not larger."""
        for number in group.heads:
            self._holding[number].append(group)

    def is_held(self, number: int) -> bool:
        """Whether some group holds a node."""
        return bool(self._holding[number])

    def holding(self, number: int, beside: int = 0) -> Iterator[Group]:
        """Groups that hold a node, smallest first; not those too large to be joined with so many nodes."""
        most = self.largest_size() - beside
        for group in self._holding[number]:
            if group.size > most:
                self.turned_away += 1
                return
            yield group


class Finder(abc.ABC):
    """Finds what one combiner joins in one graph."""

    @abc.abstractmethod
    def joins(self, group: Group) -> Iterator[tuple[Group, ...]]:
        """All groups that may become one together with a new one; an empty answer only counts as a try.

        Called once for each group. The others in the answer were called for before; so that all sets are found,
        answer each when the last of its groups comes, whichever that is. Answers may overlap, repeat, or be no
        kernel: that is looked at later.
        """

    def add(self, group: Group) -> None:  # noqa: B027  most need no index of their own
        """Takes in a group, after `joins` was called for it."""


class Combiner(abc.ABC):
    """Says which groups may become one. A value: it keeps nothing between graphs."""

    @abc.abstractmethod
    def finder(self, known: KnownGroups) -> Finder:
        """What finds them in one graph."""


class TouchingCombiner(Combiner):
    """Joins a group to one that reads its output, by what the two are."""

    @abc.abstractmethod
    def joins(self, upstream: OpPatternKind, downstream: OpPatternKind, *, is_constant: bool = False) -> bool:
        """Whether two groups may become one.

        Args:
            upstream: Kind of the group that is read.
            downstream: Kind of the group that reads.
            is_constant: Whether the group that is read is made of constants alone.
        """

    def finder(self, known: KnownGroups) -> Finder:
        """One that keeps groups by the edges across their borders."""
        return TouchingFinder(known, (self,))


@dataclasses.dataclass(frozen=True, slots=True)
class KindCombiner(TouchingCombiner):
    """Joins a group to one that reads its output, if both are of small enough kind.

    Attributes:
        upstream: Largest kind of the group that is read.
        downstream: Largest kind of the group that reads.
    """

    upstream: OpPatternKind
    downstream: OpPatternKind

    def joins(self, upstream: OpPatternKind, downstream: OpPatternKind, *, is_constant: bool = False) -> bool:
        """Whether groups of these kinds may become one."""
        return upstream <= self.upstream and downstream <= self.downstream


@dataclasses.dataclass(frozen=True, slots=True)
class ConstantsCombiner(TouchingCombiner):
    """Joins what is made of constants alone to whatever reads it: a toolchain may compute it once, when it builds.

    `prepare` folds such nodes away where it can; large tensors and weights in a quantised form stay.

    Attributes:
        downstream: Largest kind of the group that reads.
    """

    downstream: OpPatternKind = _K.OPAQUE

    def joins(self, upstream: OpPatternKind, downstream: OpPatternKind, *, is_constant: bool = False) -> bool:
        """Whether the one that is read is constant."""
        return is_constant and downstream <= self.downstream


DEFAULT_PRIMITIVES: tuple[Combiner, ...] = (
    KindCombiner(_K.OUT_ELEMENTWISE_FUSABLE, _K.BROADCAST),
    KindCombiner(_K.BROADCAST, _K.REDUCTION),
    KindCombiner(_K.INJECTIVE, _K.INJECTIVE),
)
"""What classic fusion passes join: an anchor with its element-wise epilogue, element-wise work into the reduction that
reads it, and index work with index work. A Concat is injective, so it joins with any or all of its injective
producers."""

JOIN_ANYTHING: tuple[Combiner, ...] = (KindCombiner(_K.OPAQUE, _K.OPAQUE),)
"""Whatever touches: for toolchains that compile any group of operators they support."""


class TouchingFinder(Finder):
    """Pairs of groups with an edge from one to the other.

    Groups are kept by each edge across their border, and there by what decides: kind, and the longest path that would
    go through the edge. So hardly a pair is looked at that overlaps, is too deep or may not be joined.

    Where everything that touches may be joined and the start was single nodes, one of a pair is always a single node:
    that reaches every connected convex set. In such a set, some node that reads from none of the others or is read by
    none can leave without the rest falling apart (each outermost block of the set, cut at the nodes whose removal
    disconnects it, has a first and a last node, and only one of these is such a node), and the rest is convex.

    Args:
        known: For its limits.
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
        """The group with each known one that reads from it, and each it reads from."""
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
        """Keeps it at its borders."""
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
