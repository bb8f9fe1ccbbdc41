"""Sums along an axis of which every part is a result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from collage_halide import hl
from collage_halide.elements import FLOATS
from collage_halide.errors import Refused
from collage_halide.indices import Index
from collage_halide.op import Op
from collage_halide.operators.operator import Operands, Operator, given
from collage_halide.scope import Scope
from collage_halide.values import Value


def _axis(op: Op) -> int:
    axes = op.numbers(1, "axis")
    if axes is None:
        raise Refused("CumSum without an axis")
    return axes[0] % len(op.shape(0))


def _cumulated(scope: Scope, op: Op, operands: Operands) -> Sequence[Value]:
    source, axis = given(operands, 0), _axis(op)
    extent, kind = source.shape[axis], op.result_kind()
    exclusive, backwards = bool(op.attribute("exclusive", 0)), bool(op.attribute("reverse", 0))

    def turned(index: tuple[Index, ...]) -> tuple[Index, ...]:
        if not backwards:
            return index
        return (*index[:axis], index[axis] * -1 + (extent - 1), *index[axis + 1 :])

    def element(index: tuple[Index, ...]) -> Any:
        if not exclusive:
            return source.wide(turned(index))
        earlier = index[axis] - 1
        value = source.wide(turned((*index[:axis], earlier.clamped(0, extent - 1), *index[axis + 1 :])))
        return hl.select(earlier.expression >= 0, value, kind.wide.constant(0))

    sums = scope.scanned(source.shape, axis, kind.wide, element, source.cost)
    return [scope.moved(op.result(), kind, lambda index: sums.at(turned(index)), 0)]


def _check(op: Op) -> None:
    _axis(op)
    if 0 in op.shape(0):
        raise Refused("CumSum of an empty tensor")


SCANS: Mapping[str, Operator] = MappingProxyType(
    {"CumSum": Operator(define=_cumulated, types=FLOATS | {"i32", "i64"}, check=_check)}
)
