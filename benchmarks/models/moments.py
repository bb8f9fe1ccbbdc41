"""Estimate the mean and variance of every tensor of a graph without running it.

Tensors are assumed to be normally distributed and operands independent. That is crude, but sufficient:
errors must not compound over a hundred layers, as they do if Relu is assumed to halve the mean square
whatever the mean is (in a residual network it is positive).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx

Vector = np.ndarray[Any, np.dtype[np.float64]]

_POINTS, _WEIGHTS = np.polynomial.hermite_e.hermegauss(64)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


class Moments(NamedTuple):
    """Mean and variance over the elements of a tensor."""

    mean: float
    var: float

    @property
    def square(self) -> float:
        """Mean of the squares, never zero."""
        return max(self.mean**2 + self.var, 1e-6)


UNIT = Moments(0.0, 1.0)


def _sigmoid(x: Vector) -> Vector:
    return 1.0 / (1.0 + np.exp(-x))


def _clip(x: Vector, low: float, high: float) -> Vector:
    return np.minimum(np.maximum(x, low), high)


_FUNCTIONS: dict[str, Callable[[Vector], Vector]] = {
    "Relu": lambda x: np.maximum(x, 0.0),
    "Clip": lambda x: _clip(x, 0.0, 6.0),
    "LeakyRelu": lambda x: np.where(x < 0.0, 0.1 * x, x),
    "PRelu": lambda x: np.where(x < 0.0, 0.25 * x, x),
    "HardSigmoid": lambda x: _clip(x / 6.0 + 0.5, 0.0, 1.0),
    "HardSwish": lambda x: x * _clip(x / 6.0 + 0.5, 0.0, 1.0),
    "Gelu": lambda x: x * _sigmoid(1.702 * x),
    "Sigmoid": _sigmoid,
    "Tanh": np.tanh,
    "Erf": lambda x: np.tanh(1.2 * x),
    "Swish": lambda x: x * _sigmoid(x),
}
_NORMALIZED = frozenset({"BatchNormalization", "LayerNormalization", "InstanceNormalization"})
_AVERAGING = frozenset({"GlobalAveragePool", "AveragePool", "ReduceMean"})


def through(function: Callable[[Vector], Vector], x: Moments) -> Moments:
    """Compute the moments of `function` applied to a normal variable.

    Examples:
        >>> half = through(lambda x: np.maximum(x, 0), UNIT)
        >>> round(half.square, 2)
        0.5
    """
    values = function(x.mean + math.sqrt(x.var) * _POINTS)
    mean = float(_WEIGHTS @ values)
    return Moments(mean, max(float(_WEIGHTS @ values**2) - mean**2, 0.0))


def after(node: onnx.NodeProto, known: Mapping[str, Moments], makers: Mapping[str, onnx.NodeProto]) -> Moments:
    """Compute the moments of the outputs of a node.

    Args:
        node: Any node; an operator without a rule passes on the moments of its first known input.
        known: Moments of the tensors before it, weights left out.
        makers: Node that produces each tensor, by tensor name.
    """
    operands = [known[name] for name in node.input if name in known]
    data = operands[0] if operands else UNIT
    op = node.op_type
    if op in _NORMALIZED:
        return Moments(0.0, 1.1)
    if op in {"Conv", "ConvTranspose", "Gemm"} or (op == "MatMul" and len(operands) == 1):
        return Moments(0.0, 1.04)
    if op == "Mul" and _is_swish(node, makers):
        return through(_FUNCTIONS["Swish"], known[_gate_input(node, makers)])
    if op in _FUNCTIONS:
        return through(_FUNCTIONS[op], data)
    if op in {"GRU", "LSTM"}:
        return Moments(0.0, 0.35)
    if op in _AVERAGING:
        # In deep layers most of the variance is between channels, which averaging keeps.
        return Moments(data.mean, data.var * 0.5)
    if op == "MaxPool":
        return Moments(data.mean + 0.8 * math.sqrt(data.var), 0.7 * data.var)
    return _combined(op, operands, data)


def _combined(op: str, operands: Sequence[Moments], data: Moments) -> Moments:
    if op in {"Add", "Sum"} and operands:
        return Moments(sum(x.mean for x in operands), sum(x.var for x in operands))
    if op == "Sub" and len(operands) == 2:
        return Moments(operands[0].mean - operands[1].mean, operands[0].var + operands[1].var)
    if op == "Mul" and len(operands) == 2:
        mean = operands[0].mean * operands[1].mean
        return Moments(mean, operands[0].square * operands[1].square - mean**2)
    if op == "Mul":  # By a weight: see the rule for its values.
        return Moments(data.mean * 0.75, data.var * 0.58)
    if op == "MatMul" and len(operands) == 2:
        return operands[1]  # Attention: a convex combination of the second operand.
    if op == "Softmax":
        return Moments(0.01, 1e-3)
    if op == "Concat" and operands:
        mean = sum(x.mean for x in operands) / len(operands)
        return Moments(mean, sum(x.square for x in operands) / len(operands) - mean**2)
    return data


def _gate_input(node: onnx.NodeProto, makers: Mapping[str, onnx.NodeProto]) -> str:
    """Return the tensor that a gate x * sigmoid(x) multiplies, or ""."""
    for gate, other in (node.input, reversed(node.input)):
        maker = makers.get(gate)
        if maker is not None and maker.op_type == "Sigmoid" and maker.input[0] == other:
            return str(other)
    return ""


def _is_swish(node: onnx.NodeProto, makers: Mapping[str, onnx.NodeProto]) -> bool:
    return len(node.input) == 2 and bool(_gate_input(node, makers))
