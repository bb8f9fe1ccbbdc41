"""QuantizeLinear and DequantizeLinear, per tensor or per element of an axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from collage_halide import hl
from collage_halide.elements import ElementType
from collage_halide.errors import Refused
from collage_halide.op import Op
from collage_halide.operators import formulas as f
from collage_halide.operators.operator import Operands, Operator, given, optional
from collage_halide.scope import Scope
from collage_halide.values import Number, Value

_INTEGERS = frozenset({"i8", "u8", "i16", "u16"})
Expr = Any


def _per_axis(op: Op, value: Value) -> Value:
    """Return a scale or zero point under a shape that broadcasts to the data's."""
    rank = len(op.shape(0))
    if value.size == 1:
        return value.reshaped(())
    axis = op.axis(rank, 1)
    return value.reshaped(tuple(value.size if each == axis else 1 for each in range(axis, rank)))


def _operands(op: Op, operands: Operands, zero: ElementType) -> list[Value]:
    point = optional(operands, 2)
    return [_per_axis(op, given(operands, 1)), _per_axis(op, Number(0, zero, ()) if point is None else point)]


def _quantised(scope: Scope, op: Op, operands: Operands) -> Sequence[Value]:
    kind = op.result_kind()

    def formula(x: Expr, scale: Expr, zero: Expr) -> Expr:
        whole = hl.round(x / scale) + hl.f32(zero)
        return kind.cast(f.clamped(whole, float(kind.least), float(kind.most)))

    return [scope.pointwise(op.result(), kind, [given(operands, 0), *_operands(op, operands, kind)], formula, 8)]


def _dequantised(scope: Scope, op: Op, operands: Operands) -> Sequence[Value]:
    source = op.kind(0)

    def formula(x: Expr, scale: Expr, zero: Expr) -> Expr:
        if source.bits == 32:
            return hl.cast(hl.Float(32), x - zero) * scale
        return (hl.cast(hl.Float(32), x) - hl.cast(hl.Float(32), zero)) * scale

    parts = [given(operands, 0), *_operands(op, operands, source)]
    return [scope.pointwise(op.result(), op.result_kind(), parts, formula, 3)]


def _check(op: Op, integer: ElementType) -> None:
    if op.attribute("block_size", 0):
        raise Refused(f"{op.name} by blocks")
    scale = op.shape(1)
    if len(scale) > 1:
        raise Refused(f"{op.name} with a scale of {len(scale)} axes")
    if integer.name not in _INTEGERS | {"i32"}:
        raise Refused(f"{op.name} of {integer.name}")


def _check_quantised(op: Op) -> None:
    if op.attribute("precision", 0) not in (0, 1) or op.result_kind().name == "i32":
        raise Refused("QuantizeLinear with a precision of its own")
    _check(op, op.result_kind())


QUANTISATION: Mapping[str, Operator] = MappingProxyType(
    {
        "DequantizeLinear": Operator(
            define=_dequantised, types=_INTEGERS | {"i32"}, check=lambda op: _check(op, op.kind(0))
        ),
        "QuantizeLinear": Operator(define=_quantised, types=frozenset({"f32"}), check=_check_quantised),
    }
)
