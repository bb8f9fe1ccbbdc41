"""GridSample: elements at places that are computed."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from collage_halide import hl
from collage_halide.elements import FLOATS, I32, ElementType
from collage_halide.errors import Refused
from collage_halide.indices import Index, computed, fixed
from collage_halide.op import Op
from collage_halide.operators import formulas as f
from collage_halide.operators.operator import Operands, Operator, given
from collage_halide.scope import Scope
from collage_halide.values import Value

At = tuple[Index, ...]
Expr = Any

_OUTSIDE = -1.0
"""Share of an element outside the input; all others are from 0 to 1."""


def _grid_sample(scope: Scope, op: Op, operands: Operands) -> Sequence[Value]:
    source, grid = scope.kept(given(operands, 0)), given(operands, 1)
    extents = source.shape[2:]
    aligned, padding = bool(op.attribute("align_corners", 0)), op.attribute("padding_mode", "zeros")
    nearest = op.attribute("mode", "linear") == "nearest"

    points, kind = (grid.shape[0], *grid.shape[1:-1]), grid.kind.wide
    sides = [
        _sides(scope, grid, points, axis, extents, aligned=aligned, padding=padding, nearest=nearest)
        for axis in range(len(extents))
    ]
    corners = [
        ([place for place, _ in corner], _weight(scope, [share for _, share in corner], points, kind))
        for corner in itertools.product(*sides)
    ]

    def element(index: At) -> Expr:
        point = (index[0], *index[2:])
        loops = frozenset[str]().union(*(each.loops for each in point))
        key = ",".join(each.key for each in point)
        total: Expr = None
        for places, weight in corners:
            at = [
                computed(place.at(point), f"{id(place)}:{key}", loops, extents[axis], promised=True)
                for axis, place in enumerate(places)
            ]
            counts = weight.at(point)
            value = source.wide((*index[:2], *at)) * counts
            if padding == "zeros":
                value = hl.select(counts < f.like(counts, 0.0), f.like(counts, 0.0), value)
            total = value if total is None else total + value
        return total

    return [scope.moved(op.result(), op.result_kind(), element, 2 ** len(extents) * (source.cost + 4) + 8)]


def _weight(scope: Scope, shares: Sequence[Value], points: Sequence[int], kind: ElementType) -> Value:
    """Return how much an element next to each point counts, the same for all channels; `_OUTSIDE` if it does not."""

    def formula(*along: Expr) -> Expr:
        total = functools.reduce(operator.mul, along)
        outside = functools.reduce(operator.or_, (each < f.like(each, 0.0) for each in along))
        return hl.select(outside, f.like(total, _OUTSIDE), total) if len(along) > 1 else total

    return scope.kept(scope.pointwise(points, kind, shares, formula, 4 * len(shares)), 1)


def _sides(
    scope: Scope,
    grid: Value,
    points: Sequence[int],
    axis: int,
    extents: Sequence[int],
    *,
    aligned: bool,
    padding: str,
    nearest: bool,
) -> list[tuple[Value, Value]]:
    """Return the elements on both sides of each point along an axis, and how much of each counts.

    An element outside counts `_OUTSIDE`; nothing is multiplied by that: the nearest one is read, and may be infinite.
    """
    kind, extent = grid.kind.wide, extents[axis]
    along = scope.kept(scope.moved(points, kind, _along(grid, axis, extents, aligned, padding, kind), 6), 1)

    def share(x: Expr, place: Expr) -> Expr:
        part = f.like(x, 1.0) if nearest else f.like(x, 1.0) - hl.abs(x - place)
        inside = f.less_or_equal(f.like(x, 0.0), place) & f.less_or_equal(place, f.like(x, extent - 1.0))
        return hl.select(inside, part, f.like(x, _OUTSIDE)) if padding == "zeros" else part

    def held(place: Expr) -> Expr:
        """Hold a place inside; what is no number is 0, or whatever the processor makes of it, which is held, too."""
        least, most = f.like(place, 0.0), f.like(place, extent - 1.0)
        number = hl.select(f.less_or_equal(least, place), f.at_most(place, most), least)
        return hl.clamp(hl.cast(hl.Int(32), number), 0, extent - 1)

    found: list[tuple[Value, Value]] = []
    for offset in (0.0,) if nearest else (0.0, 1.0):

        def place(x: Expr, offset: float = offset) -> Expr:
            return hl.round(x) if nearest else hl.floor(x) + f.like(x, offset)

        at = scope.pointwise(points, I32, [along], lambda x, place=place: held(place(x)), 6)
        part = scope.pointwise(points, kind, [along], lambda x, place=place: share(x, place(x)), 8)
        found.append((scope.kept(at, 1), part))
    return found


def _along(
    grid: Value, axis: int, extents: Sequence[int], aligned: bool, padding: str, kind: ElementType
) -> Callable[[At], Expr]:
    """Return where along an axis of the input each point lies; the grid has the last axis first."""

    def element(index: At) -> Expr:
        x = grid.wide((*index, fixed(len(extents) - 1 - axis)))
        return _unnormalised(kind.cast(x), extents[axis], aligned, padding)

    return element


def _unnormalised(x: Expr, extent: int, aligned: bool, padding: str) -> Expr:
    """Return the place in an axis of a number from -1 to 1; -1 and 1 are the outermost elements, or their far edges."""
    if aligned:
        place = (x + f.like(x, 1.0)) * f.like(x, (extent - 1) / 2)
    else:
        place = ((x + f.like(x, 1.0)) * f.like(x, float(extent)) - f.like(x, 1.0)) * f.like(x, 0.5)
    if padding == "border":
        return hl.clamp(place, f.like(x, 0.0), f.like(x, extent - 1.0))
    return place


def _check(op: Op) -> None:
    if op.attribute("mode", "linear") not in ("linear", "bilinear", "nearest"):
        raise Refused(f"GridSample in mode {op.attribute('mode')}")
    if op.attribute("padding_mode", "zeros") not in ("zeros", "border"):
        raise Refused(f"GridSample with padding by {op.attribute('padding_mode')}")
    if 0 in op.shape(0) or 0 in op.shape(1):
        raise Refused("GridSample of an empty tensor")


SAMPLING: Mapping[str, Operator] = MappingProxyType(
    {"GridSample": Operator(define=_grid_sample, types=FLOATS - {"f64"}, check=_check)}
)
