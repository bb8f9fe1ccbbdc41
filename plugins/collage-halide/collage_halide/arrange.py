"""Loops of our own for nests of stages: their order, what runs in parallel, and in vectors."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable, Sequence
from typing import Any

from collage_halide import hl
from collage_halide.arrangement import Arrangement
from collage_halide.nests import Nest, nest_of_sums, nests_of
from collage_halide.pipeline import Group
from collage_halide.stages import LEAST_WORK, Stage
from collage_halide.tiles import Tile, tile_of, vector_of

TASKS = 4
"""Pieces of work for each thread, so that a thread that is held up leaves its share to the others."""
MOST_UNROLLED = 8
"""Vectors of sums that are kept in registers side by side."""
MOST_PHASES_UNROLLED = 4
"""Phases of a row that registers hold side by side: with the places of the largest so far they are twice as many."""
MOST_PRODUCTS_UNROLLED = 9
"""Products of a sum whose loops are all unrolled."""


def arrange(group: Group, how: Arrangement, threads: int, lanes: int) -> Hashable:
    """Schedule a group; return what the loops are, equal for schedules that give the same code.

    Args:
        group: The group, not yet scheduled.
        how: The variant.
        threads: Threads that it will run with.
        lanes: Elements of 32 bits in a vector.
    """
    lanes = lanes if how.vectors else 1
    return tuple(_Loops(nest, how, threads, lanes).schedule() for nest in nests_of(group, how, threads))


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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Iteration:
    """What an iteration of a sink's outer loops computes.

    Attributes:
        outer: Axes of the sink that are outer loops.
        last: Its innermost axis.
        block: Elements of that axis.
        tile: Sums that registers hold; None if there are none.
    """

    outer: tuple[int, ...]
    last: int
    block: int
    tile: Tile | None


@dataclasses.dataclass(eq=False, slots=True)
class _Loops:
    """The loops of a sink.

    Attributes:
        nest: The sink, and what is computed inside its loops.
        how: The variant.
        threads: Threads that it will run with.
        lanes: Elements of 32 bits in a vector.
    """

    nest: Nest
    how: Arrangement
    threads: int
    lanes: int

    def schedule(self) -> Hashable:
        """Order, split and run in parallel and in vectors; compute members inside. Return what was decided."""
        nest, sink, func = self.nest, self.nest.sink, self.nest.func
        axes = [axis for axis, extent in enumerate(nest.shape) if extent > 1] or [len(nest.shape) - 1]
        last = axes[-1]
        tile = tile_of(nest, axes, self.lanes)
        extents, variables = list(nest.shape), sink.variables
        outer = [axis for axis in axes if axis in nest.shared and axis != last]
        inner = [variables[axis] for axis in axes if axis not in outer and axis != last]
        loops: list[Any] = [variables[axis] for axis in outer if tile is None or axis != tile.axis]
        between: list[Any] = []  # loops around a tile, inside which nothing else is computed
        block, x = extents[last], variables[last]
        wanted = self._block(last, outer) if tile is None else tile.width
        if wanted < block or (nest.members and not outer):  # members need a loop to be inside of
            xo, x = hl.Var(f"{sink.name}_xo"), hl.Var(f"{sink.name}_xi")
            func.split(variables[last], xo, x, wanted, _tail(block, wanted))
            (between if outer and last not in nest.shared else loops).append(xo)
            block = wanted
        if tile is not None:
            ao, ai = hl.Var(f"{sink.name}_ao"), hl.Var(f"{sink.name}_ai")
            func.split(variables[tile.axis], ao, ai, tile.results, _tail(extents[tile.axis], tile.results)).unroll(ai)
            if tile.axis in outer:
                loops.append(ao)
                inner.append(ai)
            else:
                between.append(ao)
                inner[inner.index(variables[tile.axis])] = ai
            extents[tile.axis] = -(-extents[tile.axis] // tile.results)
        outside = [variable for axis, variable in enumerate(variables) if axis not in axes]
        pieces = math.prod(extents[axis] for axis in outer)
        if last in nest.shared:
            pieces *= -(-extents[last] // block)
        at = self._order(loops, [*between, *inner], x, outside, pieces)
        vectors = _vectorised(func, x, block, self.lanes, sink.name)
        if tile is not None and vectors is not None:
            func.unroll(vectors)
        iteration = _Iteration(outer=tuple(outer), last=last, block=block, tile=tile)
        rows = [axis for axis in axes if axis not in (*outer, last)]
        for member in nest.members:
            if tile is not None and member is tile.member:
                ties = [each.tie for each in nest.members[member]]
                results, row = (member.variables[ties.index(axis)] for axis in (tile.axis, last))
                _in_registers(tile, results, row, func, between[-1] if between else at, self.lanes)
            elif tile is None and rows and self._slides(member, rows[-1]):
                regions = self._regions(member, iteration, row=rows[-1])
                _inside(member, regions, func, at, self.lanes, row=inner[-1])
            else:
                regions = self._regions(member, iteration)
                if not (member.windows and self._in_tiles(member, regions, at)):
                    _inside(member, regions, func, at, self.lanes)
        tiled = None if tile is None else (tile.axis, tile.results, tile.width)
        return sink.name, tuple(member.name for member in nest.members), self.lanes, wanted, tiled

    def _regions(self, member: Stage, iteration: _Iteration, row: int | None = None) -> list[_Region]:
        """Return how much of each axis of a member is computed at once.

        Args:
            member: The member.
            iteration: Where it is computed.
            row: Axis of the sink along which it is computed row by row, if it is.
        """
        tile, last = iteration.tile, iteration.last
        with_last = last in self.nest.shared
        around = {*iteration.outer, *([last] if with_last else []), *([] if row is None else [row])}
        regions = []
        for each, extent in zip(self.nest.members[member], member.shape, strict=True):
            if tile is not None and each.tie == tile.axis and tile.axis in iteration.outer:
                regions.append(_Region(tile.results, known=True))
            elif each.tie in iteration.outer:
                regions.append(_Region(1, known=True))
            elif each.tie == last and with_last:
                regions.append(_Region(iteration.block, known=True))
            else:
                still = not each.on & around
                regions.append(_Region(extent, known=still, whole=still))
        return regions

    def _in_tiles(self, member: Stage, regions: Sequence[_Region], at: Any) -> bool:
        """Give sums over windows loops of their own inside the sink's, so that registers hold them; say if they can."""
        extents = tuple(region.extent for region in regions)
        nest = nest_of_sums(member, None, extents)
        axes = [axis for axis, extent in enumerate(extents) if extent > 1]
        if not axes or not all(region.known for region in regions) or tile_of(nest, axes, self.lanes) is None:
            return False
        copy = nest.func = member.func.in_().compute_at(self.nest.func, at)
        for variable, region in zip(member.variables, regions, strict=True):
            if region.whole:
                copy.bound(variable, 0, region.extent)
        _Loops(nest, self.how, 1, self.lanes).schedule()
        return True

    def _slides(self, member: Stage, axis: int) -> bool:
        """Return whether windows of the sink run over a member along an axis, so that rows can be computed in turn."""
        name = self.nest.sink.variables[axis].name()
        reads = [index for stage, index in self.nest.sink.reads if stage is member]
        others = any(stage is member for each in self.nest.members if each is not member for stage, _ in each.reads)
        return (
            member.reduction is None
            and bool(reads)
            and not others
            and all(any(name in at.loops and at.loop != name for at in index) for index in reads)
        )

    def _block(self, last: int, outer: Sequence[int]) -> int:
        """Return how much of the innermost axis is computed together."""
        nest, lanes = self.nest, self.lanes
        extent = nest.shape[last]
        if last in nest.shared and nest.members:
            block = min(extent, max(1, self.how.vectors) * lanes)
            rows = not outer and any(member.role == "lanes" for member in nest.members)  # each has vectors of its own
            return min(block, -(-extent // (self.threads * TASKS))) if rows and self.threads > 1 else block
        if outer or last not in nest.shared:
            return extent
        least = max(lanes, LEAST_WORK // max(1, nest.sink.work + 1) // lanes * lanes)
        return max(least, -(-extent // (self.threads * TASKS) // lanes) * lanes)

    def _order(self, loops: list[Any], inner: list[Any], x: Any, outside: list[Any], pieces: int) -> Any:
        """Order the loops, and run the outer ones in parallel; return the one inside which members are computed.

        Args:
            loops: The outer loops, innermost last.
            inner: The loops inside them.
            x: The innermost loop.
            outside: Loops over axes of one element.
            pieces: Iterations of the outer loops, all together.
        """
        nest, sink, func = self.nest, self.nest.sink, self.nest.func
        func.reorder(x, *reversed(inner), *reversed(loops), *outside)
        if not loops:
            return None
        fused = loops[-1]
        for number, each in enumerate(reversed(loops[:-1])):
            both = hl.Var(f"{sink.name}_t{number}")
            func.fuse(fused, each, both)
            fused = both
        work = math.prod(nest.shape) * (sink.work + 1) + sum(each.size * each.work for each in nest.members)
        if work < LEAST_WORK or self.threads < 2 or pieces < 2:
            return fused
        factor = _divisor(pieces, max(1, pieces // (self.threads * TASKS)))
        if factor == 1:
            func.parallel(fused)
            return fused
        to, ti = hl.Var(f"{sink.name}_to"), hl.Var(f"{sink.name}_ti")
        func.split(fused, to, ti, factor, hl.TailStrategy.GuardWithIf).parallel(to)
        func.never_partition([to])  # else all rows of the first and the last task take the slow way of rows at an edge
        return ti


def _inside(
    member: Stage,
    regions: Sequence[_Region],
    sink: Any,
    at: Any,
    lanes: int,
    *,
    row: Any = None,
) -> None:
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
    if member.reduction is not None:
        _add_up(member, regions, last, lanes)


def _add_up(member: Stage, regions: Sequence[_Region], last: int, lanes: int) -> None:
    """Run the loops in which a stage adds up: in vectors, several of them side by side in registers.

    Args:
        member: The stage.
        regions: How much of each axis is computed.
        last: Its innermost axis with more than one element.
        lanes: Elements in a vector.
    """
    update, region = member.func.update(0), regions[last]
    size = vector_of(region.extent, lanes)
    exact = region.known and region.extent % size == 0
    tail = hl.TailStrategy.RoundUp if exact else hl.TailStrategy.GuardWithIf
    uo, ui = hl.Var(f"{member.name}_uo"), hl.Var(f"{member.name}_ui")
    update.split(member.variables[last], uo, ui, size, tail).vectorize(ui)
    rest = [member.variables[axis] for axis in reversed(range(len(regions))) if axis not in (last, member.scanned)]
    reduced = [*reversed(member.reduction or ())]
    steps = -(-region.extent // size)
    if member.phased and regions[-2].whole and last == len(regions) - 1:
        phase, po, pi = rest[0], hl.Var(f"{member.name}_po"), hl.Var(f"{member.name}_pi")
        phases = _divisor_up_to(regions[-2].extent, MOST_PHASES_UNROLLED)
        update.split(phase, po, pi, phases, hl.TailStrategy.RoundUp).unroll(pi)
        held = phases if member.part is None else 2 * phases  # with its place
        vectors = _divisor_up_to(steps, max(1, MOST_UNROLLED // held)) if exact else 1
        vo, vi = hl.Var(f"{member.name}_vvo"), hl.Var(f"{member.name}_vvi")
        update.split(uo, vo, vi, vectors, hl.TailStrategy.RoundUp).unroll(vi)
        update.reorder(ui, pi, vi, *reduced, vo, po, *rest[1:])
    elif steps <= MOST_UNROLLED:
        update.reorder(ui, uo, *reduced, *rest).unroll(uo, steps, tail)
    else:
        update.reorder(ui, *reduced, uo, *rest)


def _in_registers(tile: Tile, results: Any, row: Any, sink: Any, at: Any, lanes: int) -> None:
    """Compute sums inside a loop of their sink, all of a tile side by side.

    Args:
        tile: The tile.
        results: Its variable along which the results are.
        row: Its variable along the innermost axis.
        sink: The sink's function.
        at: The loop.
        lanes: Elements in a vector.
    """
    member, window = tile.member, tile.window
    func = member.func.compute_at(sink, at).unroll(results)
    func.unroll(_vectorised(func, row, tile.width, lanes, member.name))
    update, uo, ui = func.update(0), hl.Var(f"{member.name}_uo"), hl.Var(f"{member.name}_ui")
    update.split(row, uo, ui, vector_of(tile.width, lanes), hl.TailStrategy.RoundUp).vectorize(ui)
    reduced = [*reversed(member.reduction or ())]
    unrolled = [uo, results]
    if window is not None:  # what windows share is loaded once where the loop over their elements is unrolled
        reduced = [window.variable, *(each for each in reduced if each is not window.variable)]
        unrolled += reduced[:1] if member.repeats > MOST_PRODUCTS_UNROLLED else reduced
    rest = [variable for variable in reversed(member.variables) if variable is not row and variable is not results]
    update.reorder(ui, uo, results, *reduced, *rest)
    for variable in unrolled:
        update.unroll(variable)


def _vectorised(func: Any, x: Any, extent: int, lanes: int, name: str, *, known: bool = True) -> Any:
    """Run an innermost loop in vectors; return the loop over these, or None if it is left alone."""
    size = vector_of(extent, lanes)
    if size == 1:
        return None
    vo, vi = hl.Var(f"{name}_vo"), hl.Var(f"{name}_vi")
    func.split(x, vo, vi, size, _tail(extent, size) if known else hl.TailStrategy.GuardWithIf).vectorize(vi)
    return vo


def _tail(extent: int, size: int) -> Any:
    """Return what is done where a loop does not divide: the last piece is moved back over the one before.

    Not cut off: Halide 21 fails to compile a masked load that runs backwards, and masks cost time.
    """
    return hl.TailStrategy.RoundUp if extent % size == 0 else hl.TailStrategy.ShiftInwards


def _divisor_up_to(total: int, most: int) -> int:
    """Return the largest divisor of a number that is no more than another."""
    return max(each for each in range(1, most + 1) if total % each == 0)


def _divisor(total: int, wanted: int) -> int:
    """Return the divisor of a number that is next to a wanted one from below; at least half of it, else the wanted."""
    for candidate in range(wanted, max(0, wanted // 2), -1):
        if total % candidate == 0:
            return candidate
    return wanted
