"""Attribute what a library's profiler lists to the nodes of the function the library compiled."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Mapping, Sequence

from collage_core.contract.function import KernelFunction
from collage_core.contract.profile import KernelProfile, ProfiledPart, UnattributedTime
from collage_core.contract.support import Unsupported
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits
from collage_core.ir.operators.op_kind import OpPatternKind


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LibraryStep:
    """One kernel of the library, as its profiler lists it.

    Attributes:
        name: The library's name.
        time_us: Time of one run, in microseconds; 0 if it was not run.
        nodes: Names of the function's nodes that the step is known to compute: the producers of its outputs, or all
            that the library fused. Empty if nothing is known.
        extends: Whether the step may also compute element-wise nodes that follow those in `nodes`: an activation, a
            residual.
        reads: Positions of the earlier steps whose results it reads.
        converts: Whether it only changes the layout or the type of what it reads, and no node asked for that.
    """

    name: str
    time_us: float
    nodes: tuple[str, ...] = ()
    reads: tuple[int, ...] = ()
    extends: bool = False
    converts: bool = False


def attributed(function: KernelFunction, steps: Sequence[LibraryStep]) -> KernelProfile | Unsupported:
    """Attribute the steps of one run to the nodes of a function.

    A step with known nodes is a part. A node that several steps name belongs to the first of them, unless a later step
    names no other: that step joins the part. An inserted conversion counts to the part whose result it converts, or,
    if it converts an input of the function, to the part that reads the result. Any other step of which nothing is
    known computes what a later one needs (a library that decomposes an operator names only the end of it), so it
    counts to the first step that reads its result.

    A node that no step names was fused, removed or computed in advance. If it is element-wise, it joins the part of a
    step that extends and has all that the node reads. Otherwise it joins the part of the first node that reads its
    result, or that of the node it reads if nothing else reads it.

    Args:
        function: What the library compiled; its nodes have unique names.
        steps: What the library ran, in topological order.

    Returns:
        A profile whose total is the sum of the steps. Or a refusal if none took as long as the library's clock
        shows, or all that did belong to no node.

    Raises:
        KeyError: If a step names a node that the function does not have.
        ValueError: If a step reads a later one.
    """
    if not any(step.time_us for step in steps):
        return Unsupported("it is too short for the profiler's clock")
    graph = DataflowGraph(function.model)
    owners = _Owners(graph)
    parts: list[int | None] = [owners.of_step(step.nodes) for step in steps]
    _settle_unknown(steps, parts)
    owners.extend(steps, parts)
    owners.adopt()
    if not any(step.time_us for step, part in zip(steps, parts, strict=True) if part is not None):
        return Unsupported("none of what the profiler lists is known to belong to a node")
    return _profile(graph, owners.part_of, steps, parts)


class _Owners:
    """The part of each node, by the node's index."""

    def __init__(self, graph: DataflowGraph) -> None:
        self._graph = graph
        self._count = 0
        self.part_of: dict[int, int] = {}

    def of_step(self, names: Sequence[str]) -> int | None:
        """Return the part of a step, a new one if it names a node that no earlier step does; None if it names none."""
        indices = [self._graph.index_of(name) for name in names]
        fresh = [index for index in indices if index not in self.part_of]
        if not fresh:
            return self.part_of[indices[-1]] if indices else None
        self.part_of |= dict.fromkeys(fresh, self._count)
        self._count += 1
        return self._count - 1

    def extend(self, steps: Sequence[LibraryStep], parts: Sequence[int | None]) -> None:
        """Have element-wise nodes join a step that extends, in place, where everything they read is at hand there."""
        at_hand: dict[int, set[int | None]] = defaultdict(set)
        for step, part in zip(steps, parts, strict=True):
            if step.extends and part is not None:
                at_hand[part] |= {part, *(parts[read] for read in step.reads)}
        for index in range(len(self._graph)):
            before = [self.part_of.get(each) for each in iterate_bits(self._graph.predecessors[index])]
            if index not in self.part_of and self._graph.kinds[index] <= OpPatternKind.BROADCAST:
                fitting = (part for part in before if part in at_hand and at_hand[part].issuperset(before))
                if (part := next(fitting, None)) is not None:
                    self.part_of[index] = part

    def adopt(self) -> None:
        """Have each node without a part join that of its first reader, else that of a node it reads."""
        for index in reversed(range(len(self._graph))):
            self._join(index, self._graph.successors[index])
        for index in range(len(self._graph)):
            self._join(index, self._graph.predecessors[index])

    def _join(self, index: int, neighbours: int) -> None:
        if index in self.part_of:
            return
        part = next((self.part_of[each] for each in iterate_bits(neighbours) if each in self.part_of), None)
        if part is not None:
            self.part_of[index] = part


def _settle_unknown(steps: Sequence[LibraryStep], parts: list[int | None]) -> None:
    """Give steps without known nodes the part of a neighbour, in place."""
    readers: Mapping[int, list[int]] = defaultdict(list)
    for place, step in enumerate(steps):
        for read in step.reads:
            if not 0 <= read < place:
                raise ValueError(f"step {step.name!r} reads step {read}, which is not before it")
            readers[read].append(place)
    for place, step in enumerate(steps):
        if parts[place] is None and step.converts:
            parts[place] = _first(parts, step.reads)
    for place in reversed(range(len(steps))):
        if parts[place] is None:
            parts[place] = _first(parts, readers[place])
    for place, step in enumerate(steps):
        if parts[place] is None:
            parts[place] = _first(parts, step.reads)


def _first(parts: Sequence[int | None], places: Sequence[int]) -> int | None:
    return next((parts[place] for place in places if parts[place] is not None), None)


def _profile(
    graph: DataflowGraph, part_of: Mapping[int, int], steps: Sequence[LibraryStep], parts: Sequence[int | None]
) -> KernelProfile:
    times: dict[int | None, float] = defaultdict(float)
    conversions: dict[int | None, float] = defaultdict(float)
    others: dict[str, float] = defaultdict(float)
    for step, part in zip(steps, parts, strict=True):
        times[part] += step.time_us
        if step.converts:
            conversions[part] += step.time_us
        if part is None and step.time_us:
            others[step.name] += step.time_us
    members: dict[int, list[str]] = defaultdict(list)
    for index in sorted(part_of):
        members[part_of[index]].append(graph.names[index])
    ranked = sorted(others.items(), key=lambda item: -item[1])
    return KernelProfile(
        parts=tuple(
            ProfiledPart(nodes=tuple(nodes), time_us=times[part], conversion_us=min(conversions[part], times[part]))
            for part, nodes in members.items()
        ),
        unattributed=tuple(UnattributedTime(name=name, time_us=time_us) for name, time_us in ranked),
    )
