"""Element-wise operators as TVM expressions; `te` is passed in, so that reading the table needs no TVM."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from collage_core.contract import Supported, TensorSpec, Unsupported, ValueKind
from collage_core.patterns import NodeContext

Attributes: TypeAlias = Callable[[str, float], float]
"""Value of a numeric attribute, and what it is if not set."""
Expression: TypeAlias = Callable[[Any, Sequence[Any], Attributes], Any]
"""An operator's element from its operands' elements."""


def _const(te: Any, value: float) -> Any:
    return te.const(value, "float32")


def _unary(name: str) -> Expression:
    return lambda te, x, a: getattr(te, name)(x[0])


def _clamped(te: Any, value: Any, low: float, high: float) -> Any:
    return te.max(_const(te, low), te.min(_const(te, high), value))


def _hard_sigmoid(te: Any, x: Any, alpha: float, beta: float) -> Any:
    return _clamped(te, x * _const(te, alpha) + _const(te, beta), 0.0, 1.0)


def _leaky_relu(te: Any, x: Any, alpha: float) -> Any:
    return te.max(x, _const(te, 0.0)) + _const(te, alpha) * te.min(x, _const(te, 0.0))


EXPRESSIONS: Mapping[str, Expression] = {
    "Abs": _unary("abs"),
    "Add": lambda te, x, a: x[0] + x[1],
    "Ceil": _unary("ceil"),
    "Div": lambda te, x, a: x[0] / x[1],
    "Erf": _unary("erf"),
    "Exp": _unary("exp"),
    "Floor": _unary("floor"),
    "HardSigmoid": lambda te, x, a: _hard_sigmoid(te, x[0], a("alpha", 0.2), a("beta", 0.5)),
    "HardSwish": lambda te, x, a: x[0] * _hard_sigmoid(te, x[0], 1 / 6, 0.5),
    "LeakyRelu": lambda te, x, a: _leaky_relu(te, x[0], a("alpha", 0.01)),
    "Log": _unary("log"),
    "Mul": lambda te, x, a: x[0] * x[1],
    "Neg": lambda te, x, a: _const(te, 0.0) - x[0],
    "Reciprocal": lambda te, x, a: _const(te, 1.0) / x[0],
    "Relu": lambda te, x, a: te.max(x[0], _const(te, 0.0)),
    "Sigmoid": _unary("sigmoid"),
    "Sqrt": _unary("sqrt"),
    "Sub": lambda te, x, a: x[0] - x[1],
    "Tanh": _unary("tanh"),
}


def takes(node: NodeContext) -> Supported | Unsupported:
    """Whether an operator is one TVM's expression is exact for: float32, of a static shape, with elements."""
    for spec in (*node.inputs, *node.outputs):
        if spec is not None and (reason := _unusable(spec)):
            return Unsupported(reason)
    return Supported()


def _unusable(spec: TensorSpec) -> str:
    if spec.kind is not ValueKind.PLANNED:
        return f"the shape of {spec.name!r} is not known before it runs; loops are compiled for one"
    if spec.dtype is None or spec.dtype.name != "FLOAT":
        return f"{spec.name!r} is {spec.dtype.name if spec.dtype else 'no tensor'}; compiles float32 only"
    return "" if spec.nbytes else f"{spec.name!r} has no elements"
