"""Sums, differences and products of elements; those of integers wrap around, as NumPy's do.

Halide takes for granted that signed integers of 32 bits and more stay in range (`Type::can_overflow_int` in
`src/Type.h`): it takes `x < x + 1` for true. Unsigned ones wrap around.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from collage_halide import hl

Expr = Any


def added(a: Expr, b: Expr) -> Expr:
    """Return a + b."""
    return _wrapping(operator.add, a, b)


def difference(a: Expr, b: Expr) -> Expr:
    """Return a - b."""
    return _wrapping(operator.sub, a, b)


def product(a: Expr, b: Expr) -> Expr:
    """Return a * b."""
    return _wrapping(operator.mul, a, b)


def negative(x: Expr) -> Expr:
    """Return -x; of the smallest integer, itself."""
    if x.type().is_int():
        return difference(hl.cast(x.type(), hl.i32(0)), x)
    return x * hl.cast(x.type(), hl.f32(-1.0))  # Halide computes -x as 0 - x, which is 0 of 0 instead of -0


def _wrapping(function: Callable[[Expr, Expr], Expr], a: Expr, b: Expr) -> Expr:
    kind = a.type()
    if not kind.is_int():
        return function(a, b)
    unsigned = hl.UInt(kind.bits())
    return hl.cast(kind, function(hl.cast(unsigned, a), hl.cast(unsigned, b)))
