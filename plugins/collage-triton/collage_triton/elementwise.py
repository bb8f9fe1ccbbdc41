"""Element-wise operators: the formula of a result's element, after NumPy's broadcasting."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

import onnx_ir

from collage_triton.elements import FLOATS, INTEGERS
from collage_triton.errors import Refused
from collage_triton.expand import Expander, Index, Rule, attribute, dtype_of, operand, required, shape_of
from collage_triton.scalars import Scalars
from collage_triton.terms import Term

Formula: TypeAlias = Callable[[Scalars, Sequence[Term], onnx_ir.Node], Term]
"""Returns an element of the result from the operands' elements; floats are float32."""


def _float(node: onnx_ir.Node, name: str, default: float) -> float:
    return float(attribute(node, name, default))


def _called(name: str) -> Formula:
    return lambda s, x, n: s.call(name, x[0])


def _folded(step: Callable[[Scalars, Term, Term], Term]) -> Formula:
    return lambda s, x, n: functools.reduce(lambda a, b: step(s, a, b), x)


def _logical(op: str) -> Formula:
    return lambda s, x, n: s.terms.apply(op, x[0], x[1])


def _compared(*ops: str) -> Formula:
    return lambda s, x, n: functools.reduce(
        lambda a, b: s.terms.apply("or", a, b), [s.terms.apply(op, x[0], x[1], dtype="i1") for op in ops]
    )


def _modulo(s: Scalars, x: Sequence[Term], node: onnx_ir.Node) -> Term:
    """Return the remainder with the sign of the divisor, or with that of the dividend if `fmod`, as in Triton."""
    rest = s.terms.apply("mod", x[0], x[1])
    if attribute(node, "fmod", 0):
        return rest
    if x[0].dtype == "f32":
        raise Refused("Mod of floats needs fmod=1")
    apart = s.differ(s.less(rest, 0), s.less(x[1], 0))
    return s.where(s.both(s.differ(rest, 0), apart), s.add(rest, x[1]), rest)


def _absolute(s: Scalars, x: Sequence[Term], node: onnx_ir.Node) -> Term:
    return x[0] if x[0].dtype == "u8" else s.call("abs", x[0])


def _sign(s: Scalars, x: Sequence[Term], node: onnx_ir.Node) -> Term:
    below = s.number(0, x[0]) if x[0].dtype == "u8" else s.where(s.less(x[0], 0), -1, s.number(0, x[0]))
    sign = s.where(s.more(x[0], 0), 1, below)
    return s.where(s.is_nan(x[0]), x[0], sign) if x[0].dtype == "f32" else sign


def _relu(s: Scalars, x: Sequence[Term], node: onnx_ir.Node) -> Term:
    return s.where(s.less(x[0], 0), 0, x[0])  # keeps what is no number


def _elu(s: Scalars, a: Term, alpha: float, gamma: float = 1.0) -> Term:
    below = s.mul(s.sub(s.call("exp", a), 1.0), alpha * gamma)
    return s.where(s.less(a, 0.0), below, s.mul(a, gamma) if gamma != 1.0 else a)


def _celu(s: Scalars, x: Sequence[Term], node: onnx_ir.Node) -> Term:
    alpha = _float(node, "alpha", 1.0)
    below = s.mul(s.sub(s.call("exp", s.div(x[0], alpha)), 1.0), alpha)
    return s.where(s.less(x[0], 0.0), below, x[0])


def _gelu(s: Scalars, x: Sequence[Term], node: onnx_ir.Node) -> Term:
    a = x[0]
    if attribute(node, "approximate", "none") == "tanh":
        cubic = s.add(a, s.mul(s.mul(s.mul(a, a), a), 0.044715))
        # 0.5 * (1 + tanh(z)) is sigmoid(2 z)
        return s.mul(a, s.sigmoid(s.mul(cubic, 2 * math.sqrt(2 / math.pi))))
    return s.mul(s.mul(a, 0.5), s.add(s.call("erf", s.mul(a, math.sqrt(0.5))), 1.0))


def _hard_sigmoid(s: Scalars, a: Term, alpha: float, beta: float) -> Term:
    return s.clip(s.add(s.mul(a, alpha), beta), 0.0, 1.0)


def _leaky(s: Scalars, a: Term, slope: Term | float) -> Term:
    return s.where(s.less(a, 0), s.mul(a, slope), a)


def _shrink(s: Scalars, x: Sequence[Term], node: onnx_ir.Node) -> Term:
    a, bias, limit = x[0], _float(node, "bias", 0.0), _float(node, "lambd", 0.5)
    inside = s.where(s.more(a, limit), s.sub(a, bias), s.number(0, a))
    return s.where(s.less(a, -limit), s.add(a, bias), inside)


def _is_infinite(s: Scalars, x: Sequence[Term], node: onnx_ir.Node) -> Term:
    above = s.equal(x[0], math.inf) if attribute(node, "detect_positive", 1) else s.terms.const(False, "i1")
    below = s.equal(x[0], -math.inf) if attribute(node, "detect_negative", 1) else s.terms.const(False, "i1")
    return s.terms.apply("or", above, below)


def _asinh(s: Scalars, x: Sequence[Term], node: onnx_ir.Node) -> Term:
    size = s.call("abs", x[0])
    grown = s.call("log", s.add(size, s.call("sqrt", s.add(s.mul(size, size), 1.0))))
    return s.where(s.less(x[0], 0.0), s.call("neg", grown), grown)


def _acosh(s: Scalars, x: Sequence[Term], node: onnx_ir.Node) -> Term:
    return s.call("log", s.add(x[0], s.call("sqrt", s.sub(s.mul(x[0], x[0]), 1.0))))


def _atanh(s: Scalars, x: Sequence[Term], node: onnx_ir.Node) -> Term:
    one = s.number(1.0, x[0])
    return s.mul(s.call("log", s.div(s.add(one, x[0]), s.sub(one, x[0]))), 0.5)


def _hyperbolic(sign: float) -> Formula:
    def formula(s: Scalars, x: Sequence[Term], node: onnx_ir.Node) -> Term:
        grown, shrunk = s.call("exp", x[0]), s.call("exp", s.call("neg", x[0]))
        return s.mul(s.add(grown, s.mul(shrunk, sign)), 0.5)

    return formula


def _mean(s: Scalars, x: Sequence[Term], node: onnx_ir.Node) -> Term:
    return s.div(functools.reduce(s.add, x), float(len(x)))


FORMULAS: Mapping[str, Formula] = MappingProxyType(
    {
        "Abs": _absolute,
        "Acosh": _acosh,
        "Add": lambda s, x, n: s.add(x[0], x[1]),
        "And": _logical("and"),
        "Asinh": _asinh,
        "Atanh": _atanh,
        "BitwiseAnd": _logical("and"),
        "BitwiseNot": _called("invert"),
        "BitwiseOr": _logical("or"),
        "BitwiseXor": _logical("xor"),
        "Ceil": _called("ceil"),
        "Celu": _celu,
        "Cos": _called("cos"),
        "Cosh": _hyperbolic(1.0),
        "Div": lambda s, x, n: s.div(x[0], x[1]),
        "Elu": lambda s, x, n: _elu(s, x[0], _float(n, "alpha", 1.0)),
        "Equal": _compared("eq"),
        "Erf": _called("erf"),
        "Exp": _called("exp"),
        "Floor": _called("floor"),
        "Gelu": _gelu,
        "Greater": _compared("gt"),
        "GreaterOrEqual": _compared("ge"),
        "HardSigmoid": lambda s, x, n: _hard_sigmoid(s, x[0], _float(n, "alpha", 0.2), _float(n, "beta", 0.5)),
        "HardSwish": lambda s, x, n: s.mul(x[0], _hard_sigmoid(s, x[0], 1 / 6, 0.5)),
        "Identity": lambda s, x, n: x[0],
        "IsInf": _is_infinite,
        "IsNaN": lambda s, x, n: s.is_nan(x[0]),
        "LeakyRelu": lambda s, x, n: _leaky(s, x[0], _float(n, "alpha", 0.01)),
        "Less": _compared("lt"),
        "LessOrEqual": _compared("le"),
        "Log": _called("log"),
        "Max": _folded(lambda s, a, b: s.largest(a, b)),
        "Mean": _mean,
        "Min": _folded(lambda s, a, b: s.smallest(a, b)),
        "Mish": lambda s, x, n: s.mul(x[0], s.tanh(s.softplus(x[0]))),
        "Mod": _modulo,
        "Mul": lambda s, x, n: s.mul(x[0], x[1]),
        "Neg": _called("neg"),
        "Not": _called("not"),
        "Or": _logical("or"),
        "PRelu": lambda s, x, n: _leaky(s, x[0], x[1]),
        "Pow": lambda s, x, n: s.power(x[0], x[1]),
        "Reciprocal": lambda s, x, n: s.div(s.number(1.0, x[0]), x[0]),
        "Relu": _relu,
        "Round": lambda s, x, n: s.rounded(x[0]),
        "Selu": lambda s, x, n: _elu(
            s, x[0], _float(n, "alpha", 1.67326319217681884765625), _float(n, "gamma", 1.05070102214813232421875)
        ),
        "Shrink": _shrink,
        "Sigmoid": lambda s, x, n: s.sigmoid(x[0]),
        "Sign": _sign,
        "Sin": _called("sin"),
        "Sinh": _hyperbolic(-1.0),
        "Softplus": lambda s, x, n: s.softplus(x[0]),
        "Softsign": lambda s, x, n: s.div(x[0], s.add(s.call("abs", x[0]), 1.0)),
        "Sqrt": _called("sqrt"),
        "Sub": lambda s, x, n: s.sub(x[0], x[1]),
        "Sum": _folded(lambda s, a, b: s.add(a, b)),
        "Swish": lambda s, x, n: s.mul(x[0], s.sigmoid(s.mul(x[0], _float(n, "alpha", 1.0)))),
        "Tan": lambda s, x, n: s.div(s.call("sin", x[0]), s.call("cos", x[0])),
        "Tanh": lambda s, x, n: s.tanh(x[0]),
        "ThresholdedRelu": lambda s, x, n: s.where(s.more(x[0], _float(n, "alpha", 1.0)), x[0], 0),
        "Where": lambda s, x, n: s.where(x[0], x[1], x[2]),
        "Xor": _logical("xor"),
    }
)
"""Operators for which all operands are broadcast to the result."""

_OF_FLOATS = frozenset(
    {
        "Acosh",
        "Asinh",
        "Atanh",
        "Ceil",
        "Celu",
        "Cos",
        "Cosh",
        "Elu",
        "Erf",
        "Exp",
        "Floor",
        "Gelu",
        "HardSigmoid",
        "HardSwish",
        "IsInf",
        "IsNaN",
        "LeakyRelu",
        "Log",
        "Mean",
        "Mish",
        "Reciprocal",
        "Round",
        "Selu",
        "Shrink",
        "Sigmoid",
        "Sin",
        "Sinh",
        "Softplus",
        "Softsign",
        "Sqrt",
        "Swish",
        "Tan",
        "Tanh",
        "ThresholdedRelu",
    }
)


def _elementwise(formula: Formula) -> Rule:
    def rule(x: Expander, node: onnx_ir.Node, value: onnx_ir.Value, index: Index) -> Term:
        if node.op_type in _OF_FLOATS and (held := dtype_of(required(node, 0))) not in FLOATS:
            raise Refused(f"{node.op_type} of {held}; it is a function of floats here")
        terms = []
        for place in range(len(node.inputs)):
            term = x.broadcast(required(node, place), index)
            terms.append(x.terms.cast(term, "f32") if term.dtype in FLOATS else term)
        return formula(Scalars(x.terms), terms, node)

    return rule


def _cast(x: Expander, node: onnx_ir.Node, value: onnx_ir.Value, index: Index) -> Term:
    source, target = dtype_of(required(node, 0)), dtype_of(value)
    if source in FLOATS and target in ("u8", "i8"):
        # out of range is undefined in ONNX; by way of 32 bits it wraps around, as the reference's does
        return x.terms.cast(x.terms.cast(x.wide(required(node, 0), index), "i32"), target)
    return x.terms.cast(x.wide(required(node, 0), index), target)


def _clip(x: Expander, node: onnx_ir.Node, value: onnx_ir.Value, index: Index) -> Term:
    s = Scalars(x.terms)
    term = x.wide(required(node, 0), index)
    for place, name, step in ((1, "min", s.largest), (2, "max", s.smallest)):
        bound = operand(node, place)
        if bound is not None:
            limit = x.broadcast(bound, index)
            term = step(term, x.terms.cast(limit, term.dtype))
        elif attribute(node, name) is not None:
            term = step(term, s.number(float(attribute(node, name)), term))
    return term


def _batch_normalization(x: Expander, node: onnx_ir.Node, value: onnx_ir.Value, index: Index) -> Term:
    if attribute(node, "training_mode", 0) or value is not node.outputs[0]:
        raise Refused("BatchNormalization in training mode")
    s = Scalars(x.terms)
    scale, bias, mean, variance = (x.wide(required(node, place), (index[1],)) for place in range(1, 5))
    deviation = s.call("sqrt", s.add(variance, _float(node, "epsilon", 1e-5)))
    term = x.wide(required(node, 0), index)
    return s.add(s.div(s.mul(scale, s.sub(term, mean)), deviation), bias)


def _dropout(x: Expander, node: onnx_ir.Node, value: onnx_ir.Value, index: Index) -> Term:
    if value is not node.outputs[0] or operand(node, 2) is not None:
        raise Refused("Dropout with a mask, or that may be training")
    return x.at(required(node, 0), index)


def _negative(x: Expander, node: onnx_ir.Node, value: onnx_ir.Value, index: Index) -> Term:
    if dtype_of(value) not in FLOATS | INTEGERS - {"u8"}:
        raise Refused("Neg of an unsigned type")
    return _elementwise(FORMULAS["Neg"])(x, node, value, index)


def _prelu(x: Expander, node: onnx_ir.Node, value: onnx_ir.Value, index: Index) -> Term:
    if len(shape_of(required(node, 1))) > len(index):
        raise Refused("PRelu with a slope of more axes than its input")
    return _elementwise(FORMULAS["PRelu"])(x, node, value, index)


ELEMENTWISE: Mapping[str, Rule] = MappingProxyType(
    {
        **{name: _elementwise(formula) for name, formula in FORMULAS.items()},
        "BatchNormalization": _batch_normalization,
        "Cast": _cast,
        "CastLike": _cast,
        "Clip": _clip,
        "Dropout": _dropout,
        "Neg": _negative,
        "PRelu": _prelu,
    }
)
