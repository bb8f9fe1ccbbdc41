"""A group that is being turned into stages: operators ask it for values, and for what needs loops of its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from collage_halide import hl
from collage_halide.arithmetic import added
from collage_halide.combining import ARGUMENTS, COMBINE, neutral
from collage_halide.elements import I32, ElementType
from collage_halide.errors import Refused
from collage_halide.indices import Index, fixed, loop
from collage_halide.stages import LEAST_WORK, Given, Place, Role, Stage
from collage_halide.values import CHEAP, DEAR, Element, Formula, Memo, Moved, Pointwise, Value

Body: TypeAlias = Callable[[tuple[Index, ...], tuple[Index, ...]], Any]
"""Returns what is reduced: an element by the index of the result and that along the reduced axes."""

KEPT_FROM = DEAR
"""What takes fewer operations is computed again by each reader."""
ALWAYS_KEPT_FROM = 4 * DEAR
"""What takes as many is never computed again."""
MOST_OPERATIONS = 4096
"""Operations of an element beyond which Halide takes minutes to compile a stage."""
_LAST_LANES = 4
"""So many are combined one after the other."""
PARTS = 4
"""Vectors that a reduction along a row adds up side by side, so that no addition waits for the one before."""
PIECES = 8
"""Pieces for each thread, at most."""


class Scope:
    """A group that is being turned into stages.

    Args:
        vector_bytes: Width of the processor's vectors.
        threads: Threads that it will run with.

    Attributes:
        memo: Expressions of the stage that is being defined.
        stages: All stages, each after those it reads.
        places: Arguments, in the order of their first use.
    """

    def __init__(self, vector_bytes: int, threads: int) -> None:
        self.memo = Memo()
        self.stages: list[Stage] = []
        self.places: dict[tuple[str, int | str, tuple[int, ...]], Place] = {}
        self._vector_bytes = vector_bytes
        self._threads = threads
        self._readers: list[Stage] = []

    @property
    def strict(self) -> bool:
        """Whether floats are computed as written in all stages."""
        return not any(stage.fused for stage in self.stages)

    def lanes(self, kind: ElementType) -> int:
        """Return how many elements of a type a vector holds."""
        return self._vector_bytes // kind.bytes

    # Values

    def pointwise(
        self,
        shape: Sequence[int],
        kind: ElementType,
        operands: Sequence[Value],
        formula: Formula,
        cost: int = CHEAP,
    ) -> Value:
        """Return a value each element of which is a formula of one element of each operand."""
        return Pointwise(shape, kind, operands, formula, self.memo, cost)

    def moved(
        self, shape: Sequence[int], kind: ElementType, element: Element, cost: int = 0, *, phases: int = 1
    ) -> Value:
        """Return a value whose elements are found by a function of the index."""
        return Moved(shape, kind, element, self.memo, cost, phases)

    def kept(self, value: Value, least: int = KEPT_FROM) -> Value:
        """Return a value for several readers: as a stage, if computing or gathering it again costs more."""
        if isinstance(value, (Stage, Given)) or (value.cost < least and not value.scattered):
            return value
        stage = self._stage("kept", value.shape, value.kind.wide, "kept")
        stage.may_be_inlined = value.cost < ALWAYS_KEPT_FROM
        with self._defining(stage, value.cost):
            stage.func[_reversed(stage.variables)] = self._as_written(value.wide(stage.loops))
        stage.work = value.cost
        return stage

    def outputs(self, results: Sequence[tuple[int, Value]]) -> None:
        """Have values written to outputs in the same loops, under the shape with the fewest axes.

        Args:
            results: Position of each output, and its value; but for axes of extent 1, all have the same shape.
        """
        shape = results[0][1].shape or (1,)
        values = [value.reshaped(shape) for _, value in results]
        axis = 0
        while axis + 1 < len(shape):
            if all(value.merges(axis) for value in values):
                shape = (*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :])
                values = [value.reshaped(shape) for value in values]
            else:
                axis += 1
        stage = self._stage("out", shape, values[0].kind, "output")
        cost = sum(value.cost for value in values)
        with self._defining(stage, cost):
            elements = tuple(self._as_written(value.at(stage.loops)) for value in values)
            stage.func[_reversed(stage.variables)] = elements if len(elements) > 1 else elements[0]
        stage.work = cost
        for number, buffer in enumerate(stage.func.output_buffers()):
            position, value = results[number]
            self.places["out", position, shape] = Place(
                where="out",
                name=position,
                shape=shape,
                kind=value.kind,
                parameter=buffer,
                extents_of_another=number > 0,
            )

    # Reductions

    def pieces(self, how: str, row: Sequence[int], extents: Sequence[int], work: int) -> tuple[int, int]:
        """Return which reduced axis to cut so that all threads have work, and into how many pieces of one length.

        Args:
            how: See `reduced`.
            row: Shape of the result.
            extents: Extents of the reduced axes.
            work: About how many operations an element takes.
        """
        if how not in COMBINE or math.prod(row) >= self._threads or math.prod(extents) * work < LEAST_WORK:
            return 0, 1
        most = self._threads * PIECES
        for axis, extent in enumerate(extents):
            pieces = next((each for each in range(most, self._threads - 1, -1) if extent % each == 0), 1)
            if pieces > 1:
                return axis, pieces
        return 0, 1

    def reduced(
        self,
        how: str,
        row: Sequence[int],
        extents: Sequence[int],
        kind: ElementType,
        body: Body,
        *,
        along: bool,
        work: int = CHEAP,
    ) -> Stage:
        """Return a reduction.

        Args:
            how: One of `COMBINE`, or `"argmax"`, `"argmin"` (of one axis; the value is the place, an i32).
            row: Shape of the result.
            extents: Extents of the reduced axes.
            kind: Type that is reduced in.
            body: Returns what is reduced, in that type.
            along: Whether elements that are side by side in memory are reduced into one; then vectors of them are
                combined first.
            work: About how many operations the body takes.
        """
        row = tuple(row) or (1,)
        lanes = self.lanes(kind)
        count = extents[-1]
        if along and count >= 2 * lanes:
            lanes = PARTS * lanes if count >= 2 * PARTS * lanes and how in COMBINE else lanes
            return self._by_lanes(how, row, extents, kind, body, lanes, work)
        stage = self._stage("reduced", row, kind, "reduced")
        self._define(stage, how, extents, body, work, lambda at, own: own[0].expression)
        return stage

    def _by_lanes(
        self,
        how: str,
        row: tuple[int, ...],
        extents: Sequence[int],
        kind: ElementType,
        body: Body,
        lanes: int,
        work: int,
    ) -> Stage:
        count = extents[-1]
        steps = -(-count // lanes)
        parts = self._stage("lanes", (*row, lanes), kind, "lanes")

        def of_lane(at: tuple[Index, ...], own: tuple[Index, ...]) -> Any:
            place = own[-1] * lanes + at[-1]
            if count % lanes == 0:
                return body(at[:-1], (*own[:-1], place))
            inside = hl.likely(place.expression < count)
            element = body(at[:-1], (*own[:-1], place.clamped(0, count - 1)))
            return hl.select(inside, element, kind.constant(neutral(how, kind)))

        def place_of(at: tuple[Index, ...], own: tuple[Index, ...]) -> Any:
            return (own[-1] * lanes + at[-1]).clamped(0, count - 1).expression

        self._define(parts, how, (*extents[:-1], steps), of_lane, work, place_of)
        stage = self._stage("reduced", row, kind, "reduced")

        argument = how in ARGUMENTS
        while not argument and lanes > _LAST_LANES:
            lanes //= 2
            parts = self._folded(how, parts, lanes)
        last = parts

        def of_parts(at: tuple[Index, ...], own: tuple[Index, ...]) -> Any:
            return last.element((*at, *own), 0 if argument else None)

        def place_of_part(at: tuple[Index, ...], own: tuple[Index, ...]) -> Any:
            return last.element((*at, *own), 1)

        self._define(stage, how, (lanes,), of_parts, CHEAP, place_of_part, rising=False)
        return stage

    def _folded(self, how: str, parts: Stage, lanes: int) -> Stage:
        """Return the first lanes combined with the others, half as many."""
        stage = self._stage("lanes", (*parts.shape[:-1], lanes), parts.kind, "lanes")
        with self._defining(stage, CHEAP):
            first, second = (parts.at((*stage.loops[:-1], stage.loops[-1] + start)) for start in (0, lanes))
            stage.func[_reversed(stage.variables)] = self._as_written(COMBINE[how](parts.kind, first, second))
        return stage

    def _define(
        self,
        stage: Stage,
        how: str,
        extents: Sequence[int],
        body: Body,
        work: int,
        place_of: Body,
        *,
        rising: bool = True,
    ) -> None:
        """Define a stage by its neutral value and one update.

        Args:
            stage: The stage.
            how: See `reduced`.
            extents: Extents of the reduced axes.
            body: Returns what is reduced.
            work: About how many operations that takes.
            place_of: Returns its place, where the place of the largest or smallest is wanted.
            rising: Whether places rise along the reduced axes.
        """
        kind = stage.kind
        own, variables = _domain(stage.name, extents)
        here = _reversed(stage.variables)
        with self._defining(stage, work):
            element = body(stage.loops, own)
            if how in ARGUMENTS:
                argument, at = ARGUMENTS[how], place_of(stage.loops, own)
                first = place_of(stage.loops, tuple(fixed(0) for _ in own)) if rising else hl.i32(argument.no_place)
                stage.func[here] = (kind.constant(neutral(how, kind)), first)
                held, known = (hl.Expr(stage.func[here][part]) for part in (0, 1))
                if rising:
                    better = argument.takes(kind, held, element)
                else:
                    better = argument.better(kind, held, known, element, at)
                better = hl.strict_float(better)  # begins with an infinity, also where products are fused
                stage.func[here] = (hl.select(better, hl.strict_float(element), held), hl.select(better, at, known))
                stage.part = 1
            else:
                stage.func[here] = kind.constant(neutral(how, kind))
                combined = COMBINE[how](kind, hl.Expr(stage.func[here]), element)
                infinite = how in ("max", "min")  # begins with an infinity, also where products are fused
                stage.func[here] = hl.strict_float(combined) if infinite else self._as_written(combined)
        stage.reduction = variables
        stage.work = work * math.prod(extents)
        if how in ARGUMENTS and stage.role == "reduced":
            stage.kind = I32

    def scanned(self, shape: Sequence[int], axis: int, kind: ElementType, element: Element, work: int) -> Stage:
        """Return sums along an axis, each of all elements up to its own.

        Args:
            shape: Extents.
            axis: The axis.
            kind: Type that is added up in.
            element: What is added up.
            work: About how many operations an element takes.
        """
        stage = self._stage("scanned", shape, kind, "scanned")
        stage.scanned = axis
        domain = hl.RDom([hl.Range(0, shape[axis])])
        places: list[Any] = list(stage.variables)
        before: list[Any] = list(stage.variables)
        places[axis], before[axis] = domain.x, hl.max(domain.x - 1, 0)
        own = list(stage.loops)
        own[axis] = loop(domain.x, f"{stage.name}_r0", shape[axis])
        with self._defining(stage, work):
            stage.func[_reversed(stage.variables)] = kind.constant(0)
            earlier = hl.select(domain.x > 0, hl.Expr(stage.func[_reversed(before)]), kind.constant(0))
            stage.func[_reversed(places)] = self._as_written(added(earlier, element(tuple(own))))
        stage.reduction = (domain.x,)
        stage.work = work + CHEAP
        return stage

    # What stages call

    def parameter(self, where: str, name: int | str, shape: tuple[int, ...], kind: ElementType) -> Any:
        """Return the parameter that stands for memory under a shape."""
        shape = shape or (1,)
        key = where, name, shape
        if key not in self.places:
            parameter = hl.ImageParam(kind.halide, len(shape), f"{where}{len(self.places)}")
            self.places[key] = Place(where=where, name=name, shape=shape, kind=kind, parameter=parameter)
        return self.places[key].parameter

    def note(self, stage: Stage, index: tuple[Index, ...]) -> None:
        """Remember that the stage that is being defined reads another."""
        self.load(index)
        if self._readers and self._readers[-1] is not stage:
            self._readers[-1].reads.append((stage, index))

    def load(self, index: Sequence[Index]) -> None:
        """Remember which loops a load of the stage that is being defined depends on."""
        if self._readers:
            stage = self._readers[-1]
            stage.loads.append(frozenset[str]().union(*(each.loops for each in index)))
            stage.gathers = stage.gathers or any(each.loaded for each in index)

    def fuse(self) -> None:
        """Let products be fused with additions in the stage that is being defined.

        There LLVM takes for granted that there are neither infinities nor NaN.
        """
        self._readers[-1].fused = True

    def _as_written(self, expression: Any) -> Any:
        """Return an expression whose floats are computed as it is written, if products are not fused in it."""
        return expression if self._readers[-1].fused else hl.strict_float(expression)

    def _stage(self, stem: str, shape: Sequence[int], kind: ElementType, role: Role) -> Stage:
        return Stage(self, f"{stem}_{self.memo.number()}", tuple(shape) or (1,), kind, role)

    @contextmanager
    def _defining(self, stage: Stage, operations: int) -> Iterator[None]:
        if operations > MOST_OPERATIONS:
            raise Refused(f"an element takes {operations} operations; Halide would compile it for minutes")
        self.memo.clear()
        self._readers.append(stage)
        try:
            yield
        finally:
            self._readers.pop()
            self.memo.clear()
        self.stages.append(stage)


def _domain(name: str, extents: Sequence[int]) -> tuple[tuple[Index, ...], tuple[Any, ...]]:
    """Return indices along reduced axes, and Halide's variables of those with more than one element."""
    several = [axis for axis, extent in enumerate(extents) if extent > 1]
    if not several:
        return tuple(fixed(0) for _ in extents), ()
    domain = hl.RDom([hl.Range(0, extents[axis]) for axis in reversed(several)])
    variables = {axis: domain[place] for place, axis in enumerate(reversed(several))}
    own = tuple(
        loop(variables[axis], f"{name}_r{axis}", extent) if axis in variables else fixed(0)
        for axis, extent in enumerate(extents)
    )
    return own, tuple(variables[axis] for axis in several)


def _reversed(index: Sequence[Any]) -> tuple[Any, ...]:
    """Return an index as Halide has it, innermost first."""
    return tuple(reversed(index))
