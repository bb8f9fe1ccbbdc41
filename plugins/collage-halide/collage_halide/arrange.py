"""Schedules of our own: which stages are computed inside which loops, what runs in parallel, and in vectors.

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

from collage_halide import hl
from collage_halide.indices import Index
from collage_halide.pipeline import Group
from collage_halide.stages import Stage

TASKS = 4
"""Pieces of work for each thread, so that a thread that is held up leaves its share to the others."""
MOST_UNROLLED = 8
"""Vectors of sums that are kept in registers side by side."""
MOST_COPIED = 256
"""Operations of one stage that a reader may repeat: beyond, Halide compiles for many seconds what is slow anyway."""
SIDE_BY_SIDE = 4
"""Results that are computed together from one vector."""
LEAST_REUSED = 8
"""Vectors that have to be the same for several results."""
LEAST_WORK = 32_768
"""Operations below which threads cost more than they bring."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """A variant of the schedule.

    Attributes:
        vectors: Vectors along the innermost axis that are computed together, where that axis is shared; 0 for no
            vectors at all.
        keep: Whether what several readers read is kept, instead of computed again by each.
    """

    vectors: int
    keep: bool = True

    @property
    def name(self) -> str:
        """Its name."""
        return f"{'kept' if self.keep else 'inline'}-{self.vectors}"


PLAIN = Arrangement(vectors=0)
"""For what Halide compiles in no other way."""


def arrangements(group: Group) -> list[Arrangement]:
    """Return the variants that differ for a group, best guess first."""
    blocks = (4, 1, 32) if any(stage.role != "output" for stage in group.stages) else (4,)
    keeps = (True, False) if _may_inline(group) else (True,)
    return [Arrangement(vectors=vectors, keep=keep) for vectors in blocks for keep in keeps]


def _may_inline(group: Group) -> bool:
    """Return whether there is something kept that may be computed by its readers, and not too often by each."""
    found = {stage for stage in group.stages if stage.role == "kept" and stage.may_be_inlined}
    operations: dict[Stage, int] = {}
    for stage in group.stages:
        copied = sum(operations[source] for source, _ in stage.reads if source in found)
        if copied > MOST_COPIED:
            return False
        operations[stage] = stage.work + copied
    return bool(found)


def arrange(group: Group, how: Arrangement, threads: int, lanes: int) -> None:
    """Schedule a group.

    Args:
        group: The group, not yet scheduled.
        how: The variant.
        threads: Threads that it will run with.
        lanes: Elements of 32 bits in a vector.
    """
    lanes = lanes if how.vectors else 1
    for nest in _nests(group, how, threads):
        nest.schedule(how, threads, lanes)


@dataclasses.dataclass(frozen=True, slots=True)
class _Along:
    """What an axis of a stage has to do with the loops of its sink.

    Attributes:
        tie: Axis of the sink that it runs along, element by element; None if there is none.
        on: Axes of the sink that its index depends on in any way.
    """

    tie: int | None
    on: frozenset[int]


@dataclasses.dataclass(frozen=True, slots=True)
class _Region:
    """How much of an axis is computed at once.

    Attributes:
        extent: At most so many elements.
        known: Whether it is always as many; a window that moves with the loops around it is smaller.
        whole: Whether it is the whole axis, although readers may leave out its ends.
    """

    extent: int
    known: bool
    whole: bool = False


@dataclasses.dataclass(eq=False, slots=True)
class _Nest:
    """A sink, and what is computed inside its loops.

    Attributes:
        sink: The sink.
        func: Halide's function whose loops they are: of a sink that adds up, one that copies the sums.
        shared: Axes that all members run along.
        members: What is computed inside, and what each of its axes has to do with the sink's.
    """

    sink: Stage
    func: Any
    shared: set[int]
    members: dict[Stage, tuple[_Along, ...]]

    def parallelism(self, axes: set[int]) -> int:
        return math.prod(self.sink.shape[axis] for axis in axes)

    def schedule(self, how: Arrangement, threads: int, lanes: int) -> None:
        sink = self.sink
        axes = [axis for axis, extent in enumerate(sink.shape) if extent > 1] or [len(sink.shape) - 1]
        last = axes[-1]
        reused = self._reused(axes, threads)
        outer = [axis for axis in axes if axis in self.shared and axis not in (last, reused)]
        block = sink.shape[last]
        loops: list[Any] = [sink.variables[axis] for axis in outer]
        inner = [sink.variables[axis] for axis in axes if axis not in outer and axis != last]
        x = sink.variables[last]
        wanted = self._block(how, threads, lanes, last, outer)
        if wanted < block or (self.members and not outer):  # members need a loop to be inside of
            xo, x = hl.Var(f"{sink.name}_xo"), hl.Var(f"{sink.name}_xi")
            self.func.split(sink.variables[last], xo, x, wanted, _tail(block, wanted))
            loops.append(xo)
            block = wanted
        outside = [variable for axis, variable in enumerate(sink.variables) if axis not in axes]
        at = self._order(loops, inner, x, outside, threads, block)
        vectors = _vectorised(self.func, x, block, lanes, sink.name)
        if reused is not None and vectors is not None:
            _side_by_side(self.func, sink.variables[reused], sink.shape[reused], vectors, sink.name)
        rows = [axis for axis in axes if axis not in (*outer, last)]
        around = {*outer, last} if last in self.shared else set(outer)
        for member, along in self.members.items():
            slides = bool(inner) and self._slides(member, rows[-1])
            inside = {*around, rows[-1]} if slides else around
            regions = []
            for each, extent in zip(along, member.shape, strict=True):
                if each.tie in outer:
                    regions.append(_Region(1, known=True))
                elif each.tie == last and last in self.shared:
                    regions.append(_Region(block, known=True))
                else:
                    still = not each.on & inside
                    regions.append(_Region(extent, known=still, whole=still))
            _inside(member, regions, self.func, at, lanes, inner[-1] if slides else None)

    def _reused(self, axes: Sequence[int], threads: int) -> int | None:
        """Return the axis along which most of what is loaded in vectors stays the same, as channels of a convolution.

        It is next to the innermost one, so that rows stay in the cache and a vector is loaded once for several results.
        """
        sink, last = self.sink, axes[-1]
        if sink.reduction is not None:
            return None
        vectors = [loops for loops in sink.loads if sink.variables[last].name() in loops]
        for axis in axes[:-1]:
            same = sum(sink.variables[axis].name() not in loops for loops in vectors)
            rest = self.parallelism(self.shared - {axis, last})
            if same >= LEAST_REUSED and rest >= threads and sink.shape[axis] >= SIDE_BY_SIDE:
                return axis
        return None

    def _slides(self, member: Stage, axis: int) -> bool:
        """Return whether windows of the sink run over a member along an axis, so that rows can be computed in turn."""
        name = self.sink.variables[axis].name()
        reads = [index for stage, index in self.sink.reads if stage is member]
        others = any(stage is member for each in self.members if each is not member for stage, _ in each.reads)
        return (
            member.reduction is None
            and bool(reads)
            and not others
            and all(any(name in at.loops and at.loop != name for at in index) for index in reads)
        )

    def _block(self, how: Arrangement, threads: int, lanes: int, last: int, outer: Sequence[int]) -> int:
        """Return how much of the innermost axis is computed together."""
        extent, sink = self.sink.shape[last], self.sink
        if last in self.shared and self.members:
            return min(extent, max(1, how.vectors) * lanes)
        if outer or last not in self.shared:
            return extent
        pieces = threads * TASKS
        least = max(lanes, LEAST_WORK // max(1, sink.work + 1) // lanes * lanes)
        return max(least, -(-extent // pieces // lanes) * lanes)

    def _order(self, loops: list[Any], inner: list[Any], x: Any, outside: list[Any], threads: int, block: int) -> Any:
        """Order the loops; returns the one inside which members are computed."""
        sink = self.sink
        self.func.reorder(x, *reversed(inner), *reversed(loops), *outside)
        if not loops:
            return None
        fused = loops[-1]
        for number, each in enumerate(reversed(loops[:-1])):
            both = hl.Var(f"{sink.name}_t{number}")
            self.func.fuse(fused, each, both)
            fused = both
        total = self._iterations(loops, block)
        work = sink.size * (sink.work + 1) + sum(each.size * each.work for each in self.members)
        if work < LEAST_WORK or threads < 2 or total < 2:
            return fused
        factor = _divisor(total, max(1, total // (threads * TASKS)))
        if factor == 1:
            self.func.parallel(fused)
            return fused
        to, ti = hl.Var(f"{sink.name}_to"), hl.Var(f"{sink.name}_ti")
        self.func.split(fused, to, ti, factor, hl.TailStrategy.GuardWithIf).parallel(to)
        return ti

    def _iterations(self, loops: Sequence[Any], block: int) -> int:
        names = {each.name() for each in loops}
        total = 1
        for axis, variable in enumerate(self.sink.variables):
            if variable.name() in names:
                total *= self.sink.shape[axis]
        if f"{self.sink.name}_xo" in names:
            axes = [axis for axis, extent in enumerate(self.sink.shape) if extent > 1] or [len(self.sink.shape) - 1]
            total *= -(-self.sink.shape[axes[-1]] // block)
        return total


def _nests(group: Group, how: Arrangement, threads: int) -> list[_Nest]:
    """Return the sinks with their members."""
    readers: dict[Stage, list[tuple[Stage, tuple[Index, ...]]]] = {stage: [] for stage in group.stages}
    for stage in group.stages:
        for source, index in stage.reads:
            readers[source].append((stage, index))
    nests: dict[Stage, _Nest] = {}
    home: dict[Stage, _Nest | None] = {}
    along: dict[Stage, tuple[_Along, ...]] = {}
    for stage in reversed(group.stages):
        nest = _home(stage, readers[stage], home, along, how, threads)
        if nest is None and not _is_inlined(stage, how):
            nest = nests[stage] = _own_nest(stage)
            along[stage] = tuple(_Along(axis, frozenset({axis})) for axis in range(len(stage.shape)))
        home[stage] = nest
    return list(nests.values())


def _is_inlined(stage: Stage, how: Arrangement) -> bool:
    """Return whether a stage is computed by each of its readers."""
    return stage.role == "kept" and stage.may_be_inlined and (stage.seldom_kept or not how.keep)


def _own_nest(stage: Stage) -> _Nest:
    """Return the nest of a sink; one that adds up is its own member, so that its sums stay in registers."""
    shared = {axis for axis, extent in enumerate(stage.shape) if extent > 1 and axis != stage.scanned}
    if stage.reduction is None:
        if stage.role != "output":
            stage.func.compute_root()
        return _Nest(sink=stage, func=stage.func, shared=shared, members={})
    copy = stage.func.in_()
    copy.compute_root()
    along = tuple(_Along(axis if axis in shared else None, frozenset({axis})) for axis in range(len(stage.shape)))
    return _Nest(sink=stage, func=copy, shared=shared, members={stage: along})


def _home(
    stage: Stage,
    readers: Sequence[tuple[Stage, tuple[Index, ...]]],
    home: Mapping[Stage, _Nest | None],
    along: dict[Stage, tuple[_Along, ...]],
    how: Arrangement,
    threads: int,
) -> _Nest | None:
    """Return the nest inside which a stage is computed; None if it has loops of its own, or none at all."""
    if stage.role == "output" or not readers:
        return None
    nests = {id(home[reader]): home[reader] for reader, _ in readers}
    if len(nests) != 1:
        return None
    [nest] = nests.values()
    if nest is None:
        return None
    found = _along(stage, readers, along)
    if _is_inlined(stage, how):
        along[stage] = found
        return nest
    joint = nest.shared & {each.tie for each in found if each.tie is not None}
    if stage.role == "kept" and _runs_across(stage, found, joint, nest):
        return None
    enough = min(threads, nest.parallelism(nest.shared))
    if not joint or nest.parallelism(joint) < enough:
        return None
    along[stage] = found
    nest.shared = joint
    nest.members[stage] = found
    return nest


def _runs_across(stage: Stage, along: Sequence[_Along], shared: set[int], nest: _Nest) -> bool:
    """Return whether the innermost axis of a stage would be a single element inside the loops of a nest.

    What is side by side in memory then is far apart in loops, and vectors would have to gather it.
    """
    last = next((axis for axis in reversed(range(len(stage.shape))) if stage.shape[axis] > 1), None)
    innermost = max(axis for axis, extent in enumerate(nest.sink.shape) if extent > 1)
    return last is not None and along[last].tie in shared and along[last].tie != innermost


def _along(
    stage: Stage, readers: Sequence[tuple[Stage, tuple[Index, ...]]], along: Mapping[Stage, tuple[_Along, ...]]
) -> tuple[_Along, ...]:
    """Return what each axis of a stage has to do with the loops of the sink of those that read it."""
    found: list[_Along] = []
    for axis, extent in enumerate(stage.shape):
        ties: set[int | None] = set()
        on: set[int] = set()
        for reader, index in readers:
            at = index[axis]
            places = {variable.name(): along[reader][place] for place, variable in enumerate(reader.variables)}
            ties.add(places[at.loop].tie if at.loop in places else None)
            on.update(*(places[name].on for name in at.loops if name in places))
        single = len(ties) == 1 and extent > 1 and axis != stage.scanned
        found.append(_Along(ties.pop() if single else None, frozenset(on)))
    return tuple(found)


def _inside(member: Stage, regions: Sequence[_Region], sink: Any, at: Any, lanes: int, row: Any = None) -> None:
    """Compute a stage inside a loop of its sink.

    Args:
        member: The stage.
        regions: How much of each axis is computed there.
        sink: The sink's function.
        at: The loop.
        lanes: Elements in a vector.
        row: The loop inside which it is computed row by row, what rows share kept; None if it is computed as a whole.
    """
    func = member.func.compute_at(sink, at) if row is None else member.func.store_at(sink, at).compute_at(sink, row)
    for variable, region in zip(member.variables, regions, strict=True):
        if region.whole:
            func.bound(variable, 0, region.extent)
    update = None if member.reduction is None else func.update(0)
    axes = [axis for axis, each in enumerate(regions) if each.extent > 1 and axis != member.scanned]
    if member.role == "lanes" and lanes > 1:
        func.vectorize(member.variables[-1])
        if update is not None:
            update.vectorize(member.variables[-1])
        return
    if not axes:
        if update is not None:
            update.unscheduled()
        return
    last = axes[-1]
    extent = regions[last].extent
    _vectorised(func, member.variables[last], extent, lanes, member.name, known=regions[last].known)
    if update is None or member.reduction is None:
        return
    size = _vector(extent, lanes)
    exact = regions[last].known and extent % size == 0
    tail = hl.TailStrategy.RoundUp if exact else hl.TailStrategy.GuardWithIf
    uo, ui = hl.Var(f"{member.name}_uo"), hl.Var(f"{member.name}_ui")
    update.split(member.variables[last], uo, ui, size, tail).vectorize(ui)
    rvars = [*reversed(member.reduction.loops)]
    rest = [member.variables[axis] for axis in reversed(range(len(regions))) if axis not in (last, member.scanned)]
    steps = -(-extent // size)
    if steps <= MOST_UNROLLED:
        update.reorder(ui, uo, *rvars, *rest).unroll(uo, steps, tail)
    else:
        update.reorder(ui, *rvars, uo, *rest)


def _vectorised(func: Any, x: Any, extent: int, lanes: int, name: str, *, known: bool = True) -> tuple[Any, Any] | None:
    """Run an innermost loop in vectors; return the loop over these and the one inside, or None if it is left alone."""
    size = _vector(extent, lanes)
    if size == 1:
        return None
    vo, vi = hl.Var(f"{name}_vo"), hl.Var(f"{name}_vi")
    func.split(x, vo, vi, size, _tail(extent, size) if known else hl.TailStrategy.GuardWithIf).vectorize(vi)
    return vo, vi


def _side_by_side(func: Any, variable: Any, extent: int, vectors: tuple[Any, Any], name: str) -> None:
    """Compute several results along an axis for each vector."""
    vo, vi = vectors
    ao, ai = hl.Var(f"{name}_ao"), hl.Var(f"{name}_ai")
    func.split(variable, ao, ai, SIDE_BY_SIDE, _tail(extent, SIDE_BY_SIDE)).reorder(vi, ai, vo, ao).unroll(ai)


def _tail(extent: int, size: int) -> Any:
    """Return what is done where a loop does not divide: the last piece is moved back over the one before.

    Not cut off: Halide 21 fails to compile a masked load that runs backwards, and masks cost time.
    """
    return hl.TailStrategy.RoundUp if extent % size == 0 else hl.TailStrategy.ShiftInwards


def _vector(extent: int, lanes: int) -> int:
    """Return how long vectors along an axis are: a power of two that is no more than the axis has."""
    return min(lanes, 1 << (extent.bit_length() - 1))


def _divisor(total: int, wanted: int) -> int:
    """Return the divisor of a number that is next to a wanted one from below; at least half of it, else the wanted."""
    for candidate in range(wanted, max(0, wanted // 2), -1):
        if total % candidate == 0:
            return candidate
    return wanted
