"""Functions of numbers that Halide lacks, or computes otherwise at the ends of a type's range.

Halide's `exp`, `log` and `erf` (`src/IROperator.cpp`) are polynomials that vectorise; they are undefined or wrong for
infinities, NaN and subnormal numbers, which masks and badly scaled models hold. Exponentials and logarithms are
computed as written in the stages of convolutions, too, where products are fused with additions (`Scope.fuse`): LLVM
takes for granted there that nothing is infinite.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from collage_halide import hl
from collage_halide.arithmetic import negative, product

Expr = Any

_ERF_ABOVE = (
    -2.72614225801306e-10,
    2.77068142495902e-08,
    -2.10102402082508e-06,
    -5.69250639462346e-05,
    -7.34990630326855e-04,
    -2.95459980854025e-03,
    -1.60960333262415e-02,
)
_ERF_BELOW = (
    -1.45660718464996e-05,
    -2.13374055278905e-04,
    -1.68282697438203e-03,
    -7.37332916720468e-03,
    -1.42647390514189e-02,
)
_TANH = (-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1)


def like(expression: Expr, value: float) -> Expr:
    """Return a number of the type of an expression."""
    kind = expression.type()
    if not kind.is_float():
        return hl.cast(kind, hl.i64(int(value)))
    return hl.f64(value) if kind.bits() == 64 else hl.f32(value)


def is_double(expression: Expr) -> bool:
    """Return whether an expression is float64, whose functions are those of the C library."""
    return bool(expression.type().is_float() and expression.type().bits() == 64)


def exp(x: Expr) -> Expr:
    """Return e to the power x; Halide's is right up to where its exponent fits 32 bits, and for no NaN."""
    if is_double(x):
        return hl.exp(x)
    return hl.strict_float(hl.select(x < hl.f32(100.0), hl.exp(x), x + hl.f32(math.inf)))


def log(x: Expr) -> Expr:
    """Return the natural logarithm."""
    if is_double(x):
        return hl.log(x)
    small = x < hl.f32(1.1754944e-38)
    normal = hl.log(hl.select(small, x * hl.f32(2.0**24), x)) - hl.select(small, hl.f32(24 * math.log(2)), hl.f32(0.0))
    strange = hl.is_nan(x) | (x == hl.f32(math.inf))
    below = hl.select(x < hl.f32(0.0), hl.f32(math.nan), hl.select(x == hl.f32(0.0), hl.f32(-math.inf), normal))
    return hl.strict_float(hl.select(strange, x, below))


def erf(x: Expr) -> Expr:
    """Return the error function of a float32, which is 1 from 4 on, to 4e-7 of it.

    A quotient of polynomials, with the coefficients of Eigen's (`MathFunctionsImpl.h`): Halide's takes an exponential.
    """
    x = clamped(x, -4.0, 4.0)
    return x * _polynomial(_ERF_ABOVE, x * x) / _polynomial(_ERF_BELOW, x * x)


def _polynomial(coefficients: Sequence[float], x: Expr) -> Expr:
    """Return a polynomial by its coefficients, the highest first (Horner)."""
    total = hl.f32(coefficients[0])
    for coefficient in coefficients[1:]:
        total = total * x + hl.f32(coefficient)
    return total


def sigmoid(x: Expr) -> Expr:
    """Return 1 / (1 + exp(-x))."""
    return like(x, 1.0) / (like(x, 1.0) + exp(-x))


def tanh(x: Expr) -> Expr:
    """Return the hyperbolic tangent.

    Near zero by the polynomial of Cephes' `tanhf` (Moshier), elsewhere from exp(-2|x|), which does not overflow.
    """
    if is_double(x):
        return hl.tanh(x)
    square = x * x
    near = _polynomial(_TANH, square) * square * x + x
    size = hl.abs(x)
    small = exp(size * hl.f32(-2.0))
    far = (hl.f32(1.0) - small) / (hl.f32(1.0) + small)
    return hl.select(size < hl.f32(0.625), near, hl.select(x < hl.f32(0.0), -far, far))


def cosh(x: Expr) -> Expr:
    """Return the hyperbolic cosine, from exp(|x| / 2): exp(|x|) is infinite where half of it is not yet."""
    root = exp(hl.abs(x) * like(x, 0.5))
    return root * like(x, 0.5) * root + like(x, 0.5) / (root * root)


def softplus(x: Expr) -> Expr:
    """Return log(1 + exp(x)) for numbers of any size."""
    return at_least(x, like(x, 0.0)) + log(like(x, 1.0) + exp(-hl.abs(x)))


def maximum(a: Expr, b: Expr) -> Expr:
    """Return the larger one; NaN if either is NaN."""
    larger = a > b
    return hl.select(larger | hl.is_nan(a) if a.type().is_float() else larger, a, b)


def minimum(a: Expr, b: Expr) -> Expr:
    """Return the smaller one; NaN if either is NaN."""
    smaller = a < b
    return hl.select(smaller | hl.is_nan(a) if a.type().is_float() else smaller, a, b)


def at_least(x: Expr, low: Expr) -> Expr:
    """Return `maximum` with what is not NaN, in one instruction of most processors."""
    return hl.select(x < low, low, x)


def at_most(x: Expr, high: Expr) -> Expr:
    """Return `minimum` with what is not NaN; see `at_least`."""
    return hl.select(x > high, high, x)


def clamped(x: Expr, low: float, high: float) -> Expr:
    """Return the nearest number in a range; NaN of NaN."""
    return at_most(at_least(x, like(x, low)), like(x, high))


def power(x: Expr, exponent: Expr) -> Expr:
    """Return x to the power of a number of the same type, floats."""
    if is_double(x):
        return hl.pow(x, exponent)
    size = exp(exponent * log(hl.abs(x)))
    whole = hl.floor(exponent) == exponent
    odd = whole & (hl.floor(exponent * hl.f32(0.5)) * hl.f32(2.0) != exponent)
    infinite = hl.f32(math.inf)
    positive = whole | (x == -infinite) | (x == hl.f32(0.0))
    below = hl.select(odd, negative(size), hl.select(positive, size, hl.f32(math.nan)))
    signed = hl.select(hl.reinterpret(hl.Int(32), x) < hl.i32(0), below, size)  # by the sign bit, which -0 has, too
    one = (exponent == hl.f32(0.0)) | (x == hl.f32(1.0)) | ((x == hl.f32(-1.0)) & (hl.abs(exponent) == infinite))
    return hl.select(one, hl.f32(1.0), hl.select(hl.is_nan(x), x, signed))


def multiplied(x: Expr, times: int) -> Expr:
    """Return x to the power of a natural number, by squaring."""
    if times == 0:
        return like(x, 1)
    half = multiplied(x, times // 2) if times > 1 else None
    if half is None:
        return x
    square = product(half, half)
    return product(square, x) if times % 2 else square


def less_or_equal(a: Expr, b: Expr) -> Expr:
    """Return a <= b; of NaN it is false, but Halide 21 makes <= of vectors the contrary of >."""
    return (a < b) | (a == b) if a.type().is_float() else a <= b


def where(conditions: Sequence[Expr | None], x: Expr, other: Expr) -> Expr:
    """Return x where all conditions hold, as they do nearly everywhere, and another number elsewhere.

    Each has a choice of its own: of one that is about two loops Halide's loop partitioning may cut neither.

    Args:
        conditions: The conditions, of the outermost loop first; None for what always holds.
        x: The number.
        other: The other.
    """
    for condition in reversed(conditions):
        if condition is not None:
            x = hl.select(hl.likely(condition), x, other)
    return x


def finite(x: Expr) -> Expr:
    """Return a number, 0 in place of an infinite one."""
    return hl.select(hl.abs(x) == like(x, math.inf), like(x, 0.0), x)


def quotient(a: Expr, b: Expr) -> Expr:
    """Return a / b; of integers, rounded towards zero, and the smallest number by -1 is itself, as in NumPy."""
    if a.type().is_float():
        return a / b
    rounded = hl.div_round_to_zero(a, divisor(b))
    if a.type().is_uint():
        return rounded
    return hl.select(b == like(b, -1), negative(a), rounded)


def divisor(b: Expr) -> Expr:
    """Return an integer to divide by: 1 in place of 0 and of -1, by which processors trap.

    Beyond the end of a row vectors hold 0; the smallest number divided by -1 is none.
    """
    traps = b == like(b, 0)
    if not b.type().is_uint():
        traps = traps | (b == like(b, -1))
    return hl.select(traps, like(b, 1), b)
