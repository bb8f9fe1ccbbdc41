"""Which stages of a group are computed inside which loops.

Every stage is either a *sink*, with loops of its own, or computed inside the loops of the one sink that reads it. It
can be inside where its elements belong to single iterations of these loops: a softmax's sums to rows, the statistics of
an instance norm to channels. These *shared* axes then are a sink's outer loops, which run in parallel, and nothing is
computed twice.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from collage_halide.arrangement import Arrangement, is_inlined
from collage_halide.indices import Index
from collage_halide.pipeline import Group
from collage_halide.stages import Stage


@dataclasses.dataclass(frozen=True, slots=True)
class Along:
    """What an axis of a stage has to do with the loops of its sink.

    Attributes:
        tie: Axis of the sink that it runs along, element by element; None if there is none.
        on: Axes of the sink that its index depends on in any way.
    """

    tie: int | None
    on: frozenset[int]


@dataclasses.dataclass(eq=False, slots=True)
class Nest:
    """A sink, and what is computed inside its loops.

    Attributes:
        sink: The sink.
        func: Halide's function whose loops they are: of a sink that adds up, one that copies the sums.
        shape: Extents of what the loops compute, all of the sink or a part of it.
        shared: Axes that all members run along.
        members: What is computed inside, and what each of its axes has to do with the sink's.
    """

    sink: Stage
    func: Any
    shape: tuple[int, ...]
    shared: set[int]
    members: dict[Stage, tuple[Along, ...]]

    def parallelism(self, axes: set[int]) -> int:
        """Return how many iterations the loops over some axes have."""
        return math.prod(self.shape[axis] for axis in axes)


def nests_of(group: Group, how: Arrangement, threads: int) -> list[Nest]:
    """Return the sinks with their members.

    Args:
        group: The group, not yet scheduled.
        how: The variant.
        threads: Threads that it will run with: a stage that would leave fewer iterations has loops of its own.
    """
    readers: dict[Stage, list[tuple[Stage, tuple[Index, ...]]]] = {stage: [] for stage in group.stages}
    for stage in group.stages:
        for source, index in stage.reads:
            readers[source].append((stage, index))
    nests: dict[Stage, Nest] = {}
    home: dict[Stage, Nest | None] = {}
    along: dict[Stage, tuple[Along, ...]] = {}
    for stage in reversed(group.stages):
        nest = _home(stage, readers[stage], home, along, how, threads)
        if nest is None and not is_inlined(stage, how):
            nest = nests[stage] = _own_nest(stage)
            along[stage] = tuple(Along(axis, frozenset({axis})) for axis in range(len(stage.shape)))
        home[stage] = nest
    return list(nests.values())


def _own_nest(stage: Stage) -> Nest:
    """Return the nest of a sink; one that adds up is its own member, so that its sums stay in registers.

    It has all of its elements: vectors round up what readers ask for, and of one element at an index that is loaded,
    nobody knows whether there is as much behind it.
    """
    if stage.reduction is None:
        if stage.role != "output":
            _compute_whole(stage, stage.func)
        shared = {axis for axis, extent in enumerate(stage.shape) if extent > 1 and axis != stage.scanned}
        return Nest(sink=stage, func=stage.func, shape=stage.shape, shared=shared, members={})
    copy = stage.func.in_()
    _compute_whole(stage, copy)
    return nest_of_sums(stage, copy, stage.shape)


def nest_of_sums(stage: Stage, copy: Any, shape: tuple[int, ...]) -> Nest:
    """Return the nest of a sink that adds up.

    Args:
        stage: The sink.
        copy: Halide's function that copies its sums.
        shape: Extents of what is computed.
    """
    shared = {axis for axis, extent in enumerate(shape) if extent > 1 and axis != stage.scanned}
    along = tuple(Along(axis if axis in shared else None, frozenset({axis})) for axis in range(len(shape)))
    return Nest(sink=stage, func=copy, shape=shape, shared=shared, members={stage: along})


def _compute_whole(stage: Stage, func: Any) -> None:
    """Give the function that holds a stage loops of its own, over the whole stage."""
    func.compute_root()
    for variable, extent in zip(stage.variables, stage.shape, strict=True):
        func.bound(variable, 0, extent)


def _home(
    stage: Stage,
    readers: Sequence[tuple[Stage, tuple[Index, ...]]],
    home: Mapping[Stage, Nest | None],
    along: dict[Stage, tuple[Along, ...]],
    how: Arrangement,
    threads: int,
) -> Nest | None:
    """Return the nest inside which a stage is computed; None if it has loops of its own, or none at all."""
    if stage.role == "output" or stage.apart or not readers:
        return None
    nests = {id(home[reader]): home[reader] for reader, _ in readers}
    if len(nests) != 1:
        return None
    [nest] = nests.values()
    if nest is None:
        return None
    found = _along(stage, readers, along)
    if is_inlined(stage, how):
        along[stage] = found
        return nest
    joint = nest.shared & {each.tie for each in found if each.tie is not None}
    enough = min(threads, nest.parallelism(nest.shared))
    if not joint or nest.parallelism(joint) < enough:
        return None
    everywhere = nest.shared - frozenset[int]().union(*(each.on for each in found))
    mixed = any(reader.repeats > 1 for reader, _ in readers) and everywhere and joint != nest.shared
    if stage.role == "kept" and mixed:
        return None  # what all channels of a convolution read must not keep these from being computed together
    if (stage.role == "kept" or stage.repeats > 1) and _runs_across(stage, found, joint, nest):
        return None
    along[stage] = found
    nest.shared = joint
    nest.members[stage] = found
    return nest


def _runs_across(stage: Stage, along: Sequence[Along], shared: set[int], nest: Nest) -> bool:
    """Return whether the innermost axis of a stage would be a single element inside the loops of a nest.

    What is side by side in memory then is far apart in loops, and vectors would have to gather it.
    """
    last = next((axis for axis in reversed(range(len(stage.shape))) if stage.shape[axis] > 1), None)
    innermost = max((axis for axis, extent in enumerate(nest.shape) if extent > 1), default=None)
    return last is not None and along[last].tie in shared and along[last].tie != innermost


def _along(
    stage: Stage, readers: Sequence[tuple[Stage, tuple[Index, ...]]], along: Mapping[Stage, tuple[Along, ...]]
) -> tuple[Along, ...]:
    """Return what each axis of a stage has to do with the loops of the sink of those that read it."""
    found: list[Along] = []
    for axis, extent in enumerate(stage.shape):
        ties: set[int | None] = set()
        on: set[int] = set()
        for reader, index in readers:
            at = index[axis]
            places = {variable.name(): along[reader][place] for place, variable in enumerate(reader.variables)}
            ties.add(places[at.loop].tie if at.loop in places else None)
            on.update(*(places[name].on for name in at.loops if name in places))
        single = len(ties) == 1 and extent > 1 and axis != stage.scanned
        found.append(Along(ties.pop() if single else None, frozenset(on)))
    return tuple(found)
