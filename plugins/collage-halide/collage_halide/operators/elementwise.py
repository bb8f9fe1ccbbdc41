"""Element-wise operators: the formula of a result's element, after NumPy's broadcasting."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

from collage_halide import hl
from collage_halide.arithmetic import added, difference, negative, product
from collage_halide.elements import BOOL, EVERY, FLOATS, INTEGERS, NUMBERS, SIGNED, ElementType
from collage_halide.errors import Refused
from collage_halide.op import Op
from collage_halide.operators import formulas as f
from collage_halide.operators.operator import Operands, Operator, given, optional
from collage_halide.scope import Scope
from collage_halide.values import CHEAP, DEAR, Number, Value

Expr = Any
OfNode: TypeAlias = Callable[[Op, Sequence[Expr]], Expr]
"""Returns an element of the result from the operands' elements; 16-bit floats come as float32."""

_WIDE_FLOATS = FLOATS - {"f64"}


def _elementwise(formula: OfNode, types: frozenset[str] = FLOATS, cost: int = CHEAP, **more: Any) -> Operator:
    def define(scope: Scope, op: Op, operands: Operands) -> Sequence[Value]:
        present = [each for each in operands if each is not None]
        return [scope.pointwise(op.result(), op.result_kind(), present, lambda *x: formula(op, x), cost)]

    return Operator(define=define, types=types, **more)


def _unary(function: Callable[[Expr], Expr], types: frozenset[str] = FLOATS, cost: int = CHEAP) -> Operator:
    return _elementwise(lambda op, x: function(x[0]), types, cost)


def _named(name: str, types: frozenset[str] = FLOATS, cost: int = CHEAP) -> Operator:
    """Return a function of Halide's, looked up when a kernel is made."""
    return _elementwise(lambda op, x: getattr(hl, name)(x[0]), types, cost)


def _binary(
    function: Callable[[Expr, Expr], Expr], types: frozenset[str] = NUMBERS, cost: int = CHEAP, **more: Any
) -> Operator:
    return _elementwise(lambda op, x: function(x[0], x[1]), types, cost, **more)


def _folded(function: Callable[[Expr, Expr], Expr], types: frozenset[str] = NUMBERS) -> Operator:
    return _elementwise(lambda op, x: functools.reduce(function, x), types)


def _logical(function: Callable[[Expr, Expr], Expr]) -> Operator:
    return _binary(function, frozenset({"i1"}))


def _absolute(x: Expr) -> Expr:
    return x if x.type().is_uint() else hl.cast(x.type(), hl.abs(x))


def _sign(x: Expr) -> Expr:
    zero, one = f.like(x, 0), f.like(x, 1)
    if x.type().is_uint():
        return hl.select(x > zero, one, zero)
    sign = hl.select(x > zero, one, hl.select(x < zero, f.like(x, -1), zero))
    return hl.select(hl.is_nan(x), x, sign) if x.type().is_float() else sign


def _relu(x: Expr) -> Expr:
    return hl.select(x < f.like(x, 0), f.like(x, 0), x)


def _elu(x: Expr, alpha: float, gamma: float = 1.0) -> Expr:
    scaled = x * f.like(x, gamma) if gamma != 1.0 else x
    return hl.select(x < f.like(x, 0.0), (f.exp(x) - f.like(x, 1.0)) * f.like(x, alpha * gamma), scaled)


def _celu(op: Op, x: Sequence[Expr]) -> Expr:
    alpha = op.number("alpha", 1.0)
    below = (f.exp(x[0] / f.like(x[0], alpha)) - f.like(x[0], 1.0)) * f.like(x[0], alpha)
    return hl.select(x[0] < f.like(x[0], 0.0), below, x[0])


def _gelu(op: Op, x: Sequence[Expr]) -> Expr:
    a = x[0]
    if op.attribute("approximate", "none") == "tanh":
        cubic = a + a * a * a * f.like(a, 0.044715)
        # 0.5 * (1 + tanh(z)) is sigmoid(2 z)
        return a * f.sigmoid(cubic * f.like(a, 2 * math.sqrt(2 / math.pi)))
    return a * f.like(a, 0.5) * (f.erf(a * f.like(a, math.sqrt(0.5))) + f.like(a, 1.0))


def _hard_sigmoid(x: Expr, alpha: float, beta: float) -> Expr:
    return f.clamped(x * f.like(x, alpha) + f.like(x, beta), 0.0, 1.0)


def _leaky(x: Expr, slope: Expr) -> Expr:
    return hl.select(x < f.like(x, 0), product(x, slope), x)


def _shrink(op: Op, x: Sequence[Expr]) -> Expr:
    a, bias, limit = x[0], op.number("bias", 0.0), op.number("lambd", 0.5)
    inside = hl.select(a > f.like(a, limit), a - f.like(a, bias), f.like(a, 0.0))
    return hl.select(a < f.like(a, -limit), a + f.like(a, bias), inside)


def _is_infinite(op: Op, x: Sequence[Expr]) -> Expr:
    found = BOOL.constant(False)
    if op.attribute("detect_positive", 1):
        found = found | (x[0] == f.like(x[0], math.inf))
    if op.attribute("detect_negative", 1):
        found = found | (x[0] == f.like(x[0], -math.inf))
    return found


def _modulo(op: Op, x: Sequence[Expr]) -> Expr:
    """Return the remainder with the sign of the divisor, or with that of the dividend if `fmod`."""
    a, b = x
    rest = hl.mod_round_to_zero(a, f.divisor(b))
    if op.attribute("fmod", 0) or a.type().is_uint():
        return rest
    zero = f.like(a, 0)
    return hl.select((rest != zero) & ((rest < zero) != (b < zero)), rest + b, rest)


def _shift(op: Op, x: Sequence[Expr]) -> Expr:
    bits = x[0].type().bits()
    left = op.attribute("direction") == "LEFT"
    shifted = x[0] << x[1] if left else x[0] >> x[1]
    return hl.select(x[1] >= f.like(x[1], bits), f.like(x[0], 0), shifted)


def _power(scope: Scope, op: Op, operands: Operands) -> Sequence[Value]:
    base, exponent = given(operands, 0), given(operands, 1)
    kind = op.result_kind()
    if isinstance(exponent, Number):
        number = float(exponent.value)
        if number in (0.5, -0.5) and kind.is_float:
            return [scope.pointwise(op.result(), kind, [base], lambda x: _root(x, number < 0), 4)]
        if number.is_integer() and abs(number) <= 8 and (number >= 0 or kind.is_float):
            return [scope.pointwise(op.result(), kind, [base], lambda x: _whole_power(x, int(number)), 2)]
    wide = kind.wide

    def formula(x: Expr, y: Expr) -> Expr:
        return f.power(x, wide.cast(y))

    return [scope.pointwise(op.result(), kind, [base, exponent], formula, 2 * DEAR)]


def _root(x: Expr, inverse: bool) -> Expr:
    """Return x to the power 0.5 or -0.5, which differ from roots of -0 and of minus infinity."""
    zero, infinite = f.like(x, 0.0), f.like(x, math.inf)
    root = hl.sqrt(hl.select(x == zero, zero, x == -infinite, infinite, x))
    return hl.strict_float(f.like(x, 1.0) / root if inverse else root)


def _whole_power(x: Expr, exponent: int) -> Expr:
    product = f.multiplied(x, abs(exponent))
    return product if exponent >= 0 else f.like(x, 1.0) / product


def _check_power(op: Op) -> None:
    if op.kind(0).is_float:
        return
    try:
        exponent = op.constant(1)
    except Refused:
        exponent = None
    if exponent is None or exponent.size != 1 or not 0 <= float(exponent.reshape(-1)[0]) <= 8:
        raise Refused("Pow of integers by anything but one constant from 0 to 8")
    if float(exponent.reshape(-1)[0]) != int(exponent.reshape(-1)[0]):
        raise Refused("Pow of integers by a fraction")


def _converted(x: Expr, source: ElementType, target: ElementType) -> Expr:
    """Convert an element: floats are cut off to integers, anything but zero is true.

    What is out of range is undefined in ONNX; by way of a wider integer it wraps around, as the reference's does.
    """
    if target.name == "i1":
        return x != f.like(x, 0)
    if source.is_float and not target.is_float and target.bits < 64:
        return target.cast(hl.cast(hl.Int(64 if target.bits == 32 else 32), x))
    return target.cast(x)


def _cast(scope: Scope, op: Op, operands: Operands) -> Sequence[Value]:
    source, target = op.kind(0), op.result_kind()
    return [
        scope.pointwise(op.result(), target, [given(operands, 0)], lambda x: _converted(x, source.wide, target.wide))
    ]


def _check_cast(op: Op) -> None:
    if op.kind(0).name == "f64" and op.result_kind().wide is not op.result_kind():
        raise Refused("Cast of float64 to 16 bits, which takes a function of the compiler's own library")


def _check_quotient(op: Op) -> None:
    """Refuse what Halide does not compile."""
    try:
        divisor = op.constant(1)
    except Refused:
        return
    if op.kind(0).is_float and divisor is not None and divisor.size == 1 and not divisor.any():
        raise Refused("Div by a constant zero")


def _clip(scope: Scope, op: Op, operands: Operands) -> Sequence[Value]:
    value, kind = given(operands, 0), op.result_kind()
    bounds: list[tuple[Callable[[Expr, Expr], Expr], Value]] = []
    steps = (1, "min", f.at_least, f.maximum), (2, "max", f.at_most, f.minimum)
    for place, name, with_number, with_any in steps:
        bound = optional(operands, place)
        if bound is None and op.attribute(name) is not None:
            bound = Number(float(op.attribute(name)), kind, ())
        if bound is not None:
            known = isinstance(bound, Number) and not math.isnan(float(bound.value))
            bounds.append((with_number if known else with_any, bound))

    def formula(x: Expr, *limits: Expr) -> Expr:
        for (step, _), limit in zip(bounds, limits, strict=True):
            x = step(x, limit)
        return x

    return [scope.pointwise(op.result(), kind, [value, *(each for _, each in bounds)], formula, 2)]


def _batch_normalization(scope: Scope, op: Op, operands: Operands) -> Sequence[Value]:
    epsilon = op.number("epsilon", 1e-5)
    rank = len(op.shape(0))
    channel = (op.shape(0)[1] if rank > 1 else 1, *(1,) * (rank - 2))
    per_channel = [given(operands, place).reshaped(channel) for place in range(1, 5)]

    def formula(x: Expr, scale: Expr, bias: Expr, mean: Expr, variance: Expr) -> Expr:
        return (x - mean) * (scale / hl.sqrt(variance + f.like(variance, epsilon))) + bias

    return [scope.pointwise(op.result(), op.result_kind(), [given(operands, 0), *per_channel], formula, 5)]


def _check_batch_normalization(op: Op) -> None:
    if op.attribute("training_mode", 0) or any(op.uses(place) for place in range(1, len(op.node.outputs))):
        raise Refused("BatchNormalization in training mode")
    if len(op.shape(0)) < 2:
        raise Refused("BatchNormalization without channels")


def _dropout(scope: Scope, op: Op, operands: Operands) -> Sequence[Value | None]:
    return [given(operands, 0), None]


def _check_dropout(op: Op) -> None:
    if op.uses(1) or op.has(2):
        raise Refused("Dropout with a mask, or that may be training")


def _where(scope: Scope, op: Op, operands: Operands) -> Sequence[Value]:
    return [scope.pointwise(op.result(), op.result_kind(), [given(operands, k) for k in range(3)], hl.select)]


def _check_prelu(op: Op) -> None:
    if len(op.shape(1)) > len(op.shape(0)):
        raise Refused("PRelu with a slope of more axes than its input")


def _mean(op: Op, x: Sequence[Expr]) -> Expr:
    total = functools.reduce(lambda a, b: a + b, x)
    return total / f.like(total, float(len(x)))


ELEMENTWISE: Mapping[str, Operator] = MappingProxyType(
    {
        "Abs": _unary(_absolute, NUMBERS),
        "Acos": _named("acos", cost=2 * DEAR),
        "Acosh": _named("acosh", cost=2 * DEAR),
        "Add": _binary(added),
        "And": _logical(lambda a, b: a & b),
        "Asin": _named("asin", cost=2 * DEAR),
        "Asinh": _named("asinh", cost=2 * DEAR),
        "Atan": _named("atan", cost=2 * DEAR),
        "Atanh": _named("atanh", cost=2 * DEAR),
        "BatchNormalization": Operator(define=_batch_normalization, check=_check_batch_normalization),
        "BitShift": _elementwise(_shift, INTEGERS - SIGNED),
        "BitwiseAnd": _binary(lambda a, b: a & b, INTEGERS),
        "BitwiseNot": _unary(lambda x: ~x, INTEGERS),
        "BitwiseOr": _binary(lambda a, b: a | b, INTEGERS),
        "BitwiseXor": _binary(lambda a, b: a ^ b, INTEGERS),
        "Cast": Operator(define=_cast, types=EVERY, check=_check_cast),
        "CastLike": Operator(define=_cast, types=EVERY, check=_check_cast),
        "Ceil": _named("ceil"),
        "Celu": _elementwise(_celu, cost=DEAR),
        "Clip": Operator(define=_clip, types=NUMBERS),
        "Cos": _named("cos", cost=2 * DEAR),
        "Cosh": _unary(f.cosh, cost=2 * DEAR),
        "Div": _binary(f.quotient, cost=4, check=_check_quotient),
        "Dropout": Operator(define=_dropout, types=FLOATS, check=_check_dropout),
        "Elu": _elementwise(lambda op, x: _elu(x[0], op.number("alpha", 1.0)), cost=DEAR),
        "Equal": _binary(lambda a, b: a == b, EVERY),
        "Erf": _unary(f.erf, _WIDE_FLOATS, DEAR),
        "Exp": _unary(f.exp, cost=DEAR),
        "Floor": _named("floor"),
        "Gelu": _elementwise(_gelu, _WIDE_FLOATS, DEAR),
        "Greater": _binary(lambda a, b: a > b),
        "GreaterOrEqual": _binary(lambda a, b: f.less_or_equal(b, a)),
        "HardSigmoid": _elementwise(
            lambda op, x: _hard_sigmoid(x[0], op.number("alpha", 0.2), op.number("beta", 0.5)), cost=4
        ),
        "HardSwish": _unary(lambda x: x * _hard_sigmoid(x, 1 / 6, 0.5), cost=4),
        "Identity": Operator(define=lambda scope, op, operands: [given(operands, 0)], types=EVERY),
        "IsInf": _elementwise(_is_infinite),
        "IsNaN": _named("is_nan"),
        "LeakyRelu": _elementwise(lambda op, x: _leaky(x[0], f.like(x[0], op.number("alpha", 0.01)))),
        "Less": _binary(lambda a, b: a < b),
        "LessOrEqual": _binary(f.less_or_equal),
        "Log": _unary(f.log, cost=DEAR),
        "Max": _folded(f.maximum),
        "Mean": _elementwise(_mean),
        "Min": _folded(f.minimum),
        "Mish": _unary(lambda x: x * f.tanh(f.softplus(x)), cost=3 * DEAR),
        "Mod": _elementwise(_modulo, INTEGERS),
        "Mul": _binary(product),
        "Neg": _unary(negative, FLOATS | SIGNED),
        "Not": _named("logical_not", frozenset({"i1"})),
        "Or": _logical(lambda a, b: a | b),
        "PRelu": _elementwise(lambda op, x: _leaky(x[0], x[1]), NUMBERS, check=_check_prelu),
        "Pow": Operator(define=_power, types=FLOATS | {"i32", "i64"}, check=_check_power),
        "Reciprocal": _unary(lambda x: f.like(x, 1.0) / x, cost=4),
        "Relu": _unary(_relu, FLOATS | SIGNED),
        "Round": _named("round"),
        "Selu": _elementwise(
            lambda op, x: _elu(
                x[0], op.number("alpha", 1.67326319217681884765625), op.number("gamma", 1.05070102214813232421875)
            ),
            cost=DEAR,
        ),
        "Shrink": _elementwise(_shrink),
        "Sigmoid": _unary(f.sigmoid, cost=DEAR),
        "Sign": _unary(_sign, NUMBERS),
        "Sin": _named("sin", cost=2 * DEAR),
        "Sinh": _named("sinh", cost=2 * DEAR),
        "Softplus": _unary(f.softplus, cost=2 * DEAR),
        "Softsign": _unary(lambda x: x / (f.like(x, 1.0) + hl.abs(x)), cost=4),
        "Sqrt": _named("sqrt", cost=4),
        "Sub": _binary(difference),
        "Sum": _folded(lambda a, b: a + b, FLOATS),
        "Swish": _elementwise(lambda op, x: x[0] * f.sigmoid(x[0] * f.like(x[0], op.number("alpha", 1.0))), cost=DEAR),
        "Tan": _named("tan", cost=2 * DEAR),
        "Tanh": _unary(f.tanh, cost=DEAR),
        "ThresholdedRelu": _elementwise(
            lambda op, x: hl.select(x[0] > f.like(x[0], op.number("alpha", 1.0)), x[0], f.like(x[0], 0.0))
        ),
        "Where": Operator(define=_where, types=EVERY, data=1),
        "Xor": _logical(lambda a, b: a ^ b),
    }
)
