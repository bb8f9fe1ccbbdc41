"""Compute Erf, Gelu, Einsum and integer products without a Python call per element."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from collage.reference.kernels.windows import Array, all_inputs

# W. J. Cody, "Rational Chebyshev approximations for the error function", Math. Comp. 23 (1969), in the form of
# netlib's CALERF; double precision, relative error below 1.2e-16 in exact arithmetic.
_A = (1.85777706184603153e-1, 3.16112374387056560, 1.13864154151050156e2, 3.77485237685302021e2, 3.20937758913846947e3)
_B = (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3)
_C = (
    2.15311535474403846e-8,
    5.64188496988670089e-1,
    8.88314979438837594,
    6.61191906371416295e1,
    2.98635138197400131e2,
    8.81952221241769090e2,
    1.71204761263407058e3,
    2.05107837782607147e3,
    1.23033935479799725e3,
)
_D = (
    1.0,
    1.57449261107098347e1,
    1.17693950891312499e2,
    5.37181101862009858e2,
    1.62138957456669019e3,
    3.29079923573345963e3,
    4.36261909014324716e3,
    3.43936767414372164e3,
    1.23033935480374942e3,
)
_BLOCK = 1 << 14  # elements whose intermediate results stay in the cache
_SMALL = 0.46875
_SATURATED = 6.0  # erf is 1 to double precision from 5.93 on


def erf(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> tuple[Array, ...]:
    """Compute Erf; ONNX's calls `math.erf` through `np.vectorize`."""
    del attributes
    x = inputs[0]
    return (error_function(x).astype(x.dtype),)


def gelu(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """Compute Gelu, exact or by tanh; ONNX's evaluator has it only as a function it cannot expand by itself."""
    x = inputs[0].astype(np.float64)
    match attributes.get("approximate", "none"):
        case "none":
            share = error_function(x * np.sqrt(0.5))
        case "tanh":
            share = np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3))
        case _:
            return NotImplemented
    return ((0.5 * x * (1.0 + share)).astype(inputs[0].dtype),)


def error_function(x: Array) -> Array:
    """Return erf of an array, in float64."""
    flat = np.ascontiguousarray(x, np.float64).reshape(-1)
    result = np.empty_like(flat)
    for start in range(0, flat.size, _BLOCK):
        block = slice(start, start + _BLOCK)
        result[block] = _error_function(flat[block])
    return result.reshape(np.shape(x))


def _error_function(x: Array) -> Array:
    size = np.minimum(np.abs(x), _SATURATED)
    square = size * size
    small = x * (_polynomial(_A, square) / _polynomial(_B, square))
    tail = 1.0 - np.exp(-square) * (_polynomial(_C, size) / _polynomial(_D, size))
    result = np.where(size <= _SMALL, small, np.copysign(np.where(size >= _SATURATED, 1.0, tail), x))
    return np.where(np.isnan(x), x, result)


def _polynomial(coefficients: Sequence[float], x: Array) -> Array:
    result = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        result *= x
        result += coefficient
    return result


def einsum(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> tuple[Array, ...]:
    """Compute Einsum in the order that costs least, through BLAS where that can do it."""
    equation = attributes["equation"].strip()
    return (np.asarray(np.einsum(equation, *inputs, optimize=True)),)


def matmul(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> tuple[Array, ...]:
    """Compute MatMul with operands as BLAS wants them.

    ONNX's is `np.matmul`, which leaves BLAS where an operand is a transposed view, 50 times slower, and calls it
    once per row of images where the second operand is one matrix.
    """
    del attributes
    first, second = np.ascontiguousarray(inputs[0]), np.ascontiguousarray(inputs[1])
    if first.ndim > 2 and second.ndim == 2:
        flat = first.reshape(-1, first.shape[-1]) @ second
        return (flat.reshape(*first.shape[:-1], second.shape[1]),)
    return (np.asarray(np.matmul(first, second)),)


def matmul_integer(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> tuple[Array, ...]:
    """Compute MatMulInteger in float64, exact for any inner size below 2**37, where NumPy has BLAS."""
    del attributes
    first, second, first_zero, second_zero = all_inputs(inputs, 4)
    first, second = first.astype(np.float64), second.astype(np.float64)
    if first_zero is not None:
        by_row = first_zero.ndim == 1 and first_zero.size > 1
        first = first - (first_zero[:, None] if by_row else first_zero)
    if second_zero is not None:
        second = second - second_zero
    return (np.matmul(first, second).astype(np.int64).astype(np.int32),)
