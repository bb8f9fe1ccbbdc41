"""Join Concat and Split with all producers of their inputs, or all readers of their outputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from collage_core.fusion.combiners import Combiner, Finder, KnownGroups
from collage_core.fusion.groups import Group
from collage_core.ir.operators.op_kind import OpPatternKind

_K = OpPatternKind


@dataclasses.dataclass(frozen=True, slots=True)
class ConcatCombiner(Combiner):
    """Joins a Concat with the groups that produce its inputs, all or none: each then writes its slice in place.

    The result of a producer left outside would have to be copied. TVM's fusion has the same step for fields of
    tuples.

    Attributes:
        producers: Largest kind of a group that produces an input.
        most: Largest kind of the group with the Concat.
        operator: The operator, of ONNX's own domain.
    """

    producers: OpPatternKind = _K.INJECTIVE
    most: OpPatternKind = _K.INJECTIVE
    operator: str = "Concat"

    def finder(self, known: KnownGroups) -> Finder:
        """Create a finder that looks for a group for each input."""
        return _SidesFinder(known, self.operator, self.most, self.producers, known.kernels.sources)


@dataclasses.dataclass(frozen=True, slots=True)
class SplitCombiner(Combiner):
    """Joins a Split with the groups that read its outputs, all or none, so that no slice is copied.

    Attributes:
        readers: Largest kind of a group that reads an output.
        most: Largest kind of the group with the Split.
        operator: The operator, of ONNX's own domain.
    """

    readers: OpPatternKind = _K.INJECTIVE
    most: OpPatternKind = _K.INJECTIVE
    operator: str = "Split"

    def finder(self, known: KnownGroups) -> Finder:
        """Create a finder that looks for a group for each reader."""
        return _SidesFinder(known, self.operator, self.most, self.readers, known.kernels.readers)


class _SidesFinder(Finder):
    """Finds a group with an operator, and groups that hold all of the operator's neighbours on one side.

    Args:
        known: The groups so far.
        operator: The operator's type.
        most: Largest kind of the group with the operator.
        side_most: Largest kind of the neighbouring groups.
        sides: By node, its neighbours on that side.
    """

    def __init__(
        self,
        known: KnownGroups,
        operator: str,
        most: OpPatternKind,
        side_most: OpPatternKind,
        sides: tuple[tuple[int, ...], ...],
    ) -> None:
        self._known = known
        self._most = most
        self._side_most = side_most
        nodes = known.kernels.graph.nodes
        self._sides: dict[int, tuple[int, ...]] = {}
        self._beside: dict[int, list[int]] = {}
        for number, index in enumerate(known.kernels.indices):
            node = nodes[index]
            if node.op_type == operator and node.domain in ("", "ai.onnx") and sides[number]:
                self._sides[number] = sides[number]
                for side in sides[number]:
                    self._beside.setdefault(side, []).append(number)

    def joins(self, group: Group) -> Iterator[tuple[Group, ...]]:
        """Yield joins in which the group holds the operator, and joins in which it is on the operator's side."""
        for number in group.heads:
            if number in self._sides and group.kind <= self._most and self._is_possible(number, group):
                yield from self._covered(number, (group,))
            if group.kind <= self._side_most:
                for centre in self._beside.get(number, ()):
                    if not self._is_possible(centre, group):
                        continue
                    for other in self._known.holding(centre, group.size) if not group.holds(centre) else ():
                        if other.kind <= self._most and not other.overlaps(group):
                            yield from self._covered(centre, (other, group))

    def _is_possible(self, centre: int, group: Group) -> bool:
        """Return whether each node on the operator's side is in the group or in a known group.

        Otherwise no combination of groups can cover the side, and the search is skipped.
        """
        return all(group.holds(number) or self._known.is_held(number) for number in self._sides[centre])

    def _covered(self, centre: int, groups: tuple[Group, ...]) -> Iterator[tuple[Group, ...]]:
        """Add known groups until the operator's side is covered; the first group holds the operator.

        Where nothing fits, an empty tuple is yielded: it counts as a tried join, and is bounded like one.
        """
        missing = [number for number in self._sides[centre] if not any(group.holds(number) for group in groups)]
        if not missing:
            yield groups if len(groups) > 1 else ()
            return
        size = sum(group.size for group in groups)
        fits = False
        for other in self._known.holding(missing[0], size):
            if other.kind > self._side_most or any(other.overlaps(group) for group in groups):
                continue
            left = sum(not other.holds(number) for number in missing)
            if size + other.size + left > self._known.largest_size():
                self._known.turned_away += 1
                continue
            fits = True
            yield from self._covered(centre, (*groups, other))
        if not fits:
            yield ()
