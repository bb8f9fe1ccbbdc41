"""Operators that only gather or hand out, together with everything on their many side."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from collage_core.fusion.combiners import Combiner, Finder, KnownGroups
from collage_core.fusion.groups import Group
from collage_core.ir.operators.op_kind import OpPatternKind

_K = OpPatternKind


@dataclasses.dataclass(frozen=True, slots=True)
class ConcatCombiner(Combiner):
    """Joins a Concat with the groups that make its inputs, all of them or none: each then writes its slice in place.

    A producer that stayed outside would have its result copied after all. TVM's fusion has the same step for fields of
    tuples.

    Attributes:
        producers: Largest kind of a group that makes an input.
        most: Largest kind of the group with the Concat.
        operator: The operator, of ONNX's own domain.
    """

    producers: OpPatternKind = _K.INJECTIVE
    most: OpPatternKind = _K.INJECTIVE
    operator: str = "Concat"

    def finder(self, known: KnownGroups) -> Finder:
        """One that looks for a group for each input."""
        return _SidesFinder(known, self.operator, self.most, self.producers, known.kernels.sources)


@dataclasses.dataclass(frozen=True, slots=True)
class SplitCombiner(Combiner):
    """Joins a Split with the groups that read its outputs, all of them or none: nothing is ever split.

    Attributes:
        readers: Largest kind of a group that reads an output.
        most: Largest kind of the group with the Split.
        operator: The operator, of ONNX's own domain.
    """

    readers: OpPatternKind = _K.INJECTIVE
    most: OpPatternKind = _K.INJECTIVE
    operator: str = "Split"

    def finder(self, known: KnownGroups) -> Finder:
        """One that looks for a group for each reader."""
        return _SidesFinder(known, self.operator, self.most, self.readers, known.kernels.readers)


class _SidesFinder(Finder):
    """A group with an operator, and groups that hold all of what the operator has on one side.

    Args:
        known: The groups so far.
        operator: The operator's type.
        most: Largest kind of the group with the operator.
        side_most: Largest kind of the groups beside it.
        sides: By node, the nodes on that side.
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
        """As the group with the operator, and as one beside it."""
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
        """Whether somebody holds each of what is beside the operator; or all combinations of the others are in vain."""
        return all(group.holds(number) or self._known.is_held(number) for number in self._sides[centre])

    def _covered(self, centre: int, groups: tuple[Group, ...]) -> Iterator[tuple[Group, ...]]:
        """Adds known groups until everything beside the operator is held; the first group holds the operator.

        Where nothing fits, the answer is empty: that counts as a join that was tried, and is bounded like those.
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
