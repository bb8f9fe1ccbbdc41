"""GridSample: elements at places that are computed."""

from __future__ import annotations

import itertools
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


def _grid_sample(scope: Scope, op: Op, operands: Operands) -> Sequence[Value]:
    source, grid = scope.kept(given(operands, 0)), given(operands, 1)
    extents = source.shape[2:]
    aligned, padding = bool(op.attribute("align_corners", 0)), op.attribute("padding_mode", "zeros")
    nearest = op.attribute("mode", "linear") == "nearest"

    points = (grid.shape[0], *grid.shape[1:-1])
    corners = [
        _corners(scope, grid, points, axis, extents, aligned=aligned, padding=padding, nearest=nearest)
        for axis in range(len(extents))
    ]

    def element(index: At) -> Expr:
        point = (index[0], *index[2:])
        loops = frozenset[str]().union(*(each.loops for each in point))
        key = ",".join(each.key for each in point)
        total: Expr = None
        for corner in itertools.product(*corners):
            places = [
                computed(place.at(point), f"{id(place)}:{key}", loops, extents[axis], promised=True)
                for axis, (place, _) in enumerate(corner)
            ]
            value = source.wide((*index[:2], *places))
            for _, share in corner:
                value = value * share.at(point)
            total = value if total is None else total + value
        return total

    return [scope.moved(op.result(), op.result_kind(), element, 2 ** len(extents) * (source.cost + 4) + 8)]


def _corners(
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
    """Return the elements next to each point along an axis, and how much of each counts; both the same for channels."""
    kind, extent = grid.kind.wide, extents[axis]
    along = scope.kept(scope.moved(points, kind, _along(grid, axis, extents, aligned, padding, kind), 6), 1)

    def share(x: Expr, place: Expr) -> Expr:
        part = f.like(x, 1.0) if nearest else f.like(x, 1.0) - hl.abs(x - place)
        inside = (place >= f.like(x, 0.0)) & (place <= f.like(x, extent - 1.0))
        return hl.select(inside, part, f.like(x, 0.0)) if padding == "zeros" else part

    def held(place: Expr) -> Expr:
        return hl.cast(hl.Int(32), hl.clamp(place, f.like(place, 0.0), f.like(place, extent - 1.0)))

    found: list[tuple[Value, Value]] = []
    for offset in (0.0,) if nearest else (0.0, 1.0):

        def place(x: Expr, offset: float = offset) -> Expr:
            return hl.round(x) if nearest else hl.floor(x) + f.like(x, offset)

        at = scope.pointwise(points, I32, [along], lambda x, place=place: held(place(x)), 4)
        part = scope.pointwise(points, kind, [along], lambda x, place=place: share(x, place(x)), 8)
        found.append((scope.kept(at, 1), scope.kept(part, 1)))
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
