"""Match arithmetic with known numbers in the forms that exporters write."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np

from collage_core.ir.values.tensor_spec import TensorSpec
from collage_core.patterns import NodeContext, Pattern, is_constant, is_op, wildcard
from collage_core.patterns.library.epilogue import any_of
from collage_core.patterns.pattern import Constant

_PRECISION = 1e-5
"""Relative tolerance.

Exporters write constants with at least five digits; narrow types round them to fewer.
"""


def is_number(value: float) -> Constant:
    """Match a one-element constant equal to `value` to five digits, or to the precision of its dtype if lower.

    Args:
        value: The number; not zero.
    """

    def holds(array: np.ndarray[Any, Any]) -> bool:
        if array.size != 1 or array.dtype.kind in "OSU":
            return False
        exact = array.dtype.kind in "biu"
        precision = 0.0 if exact else max(_PRECISION, float(ml_dtypes.finfo(array.dtype).eps))
        return abs(float(array.reshape(())) - value) <= precision * abs(value)

    return is_constant(holds, f"the number {value:g}")


def times(pattern: Pattern, factor: float) -> Pattern:
    """Match a value multiplied by a number, or divided by its reciprocal."""
    return is_op("Mul")(pattern, is_number(factor)) | is_op("Div")(pattern, is_number(1 / factor))


def scaled(value: Pattern, name: str, *, known: bool = True) -> Pattern:
    """Match a value scaled by one number; capture the number as `{name}_factor` or `{name}_divisor`.

    Args:
        value: The value that is multiplied or divided.
        name: Prefix of the capture.
        known: Whether the number has to be a constant.
    """
    factor, divisor = (
        (is_constant() if known else wildcard()).where(is_one_element, "one element").named(f"{name}_{role}")
        for role in ("factor", "divisor")
    )
    return is_op("Mul")(value, factor) | is_op("Div")(value, divisor)


def is_one_element(spec: TensorSpec) -> bool:
    """Return whether a value is known to have one element; false if its shape is unknown."""
    return spec.shape is not None and all(extent == 1 for extent in spec.shape)


def product(*factors: Pattern | float) -> Pattern:
    """Match a product of values and numbers, multiplied in any order; each value may occur once.

    Args:
        *factors: Values and numbers; at least one is a pattern.
    """
    if len(factors) == 1:
        [only] = factors
        if not isinstance(only, Pattern):
            raise TypeError(f"a product of {only} alone is no value of a graph")
        return only
    found: list[Pattern] = []
    for size in range(1, len(factors) // 2 + 1):
        for chosen in itertools.combinations(range(len(factors)), size):
            left = [factors[each] for each in chosen]
            right = [factors[each] for each in range(len(factors)) if each not in chosen]
            if 2 * size == len(factors) and 0 not in chosen:
                continue  # the other half of a pair of halves
            found += _joined(left, right)
    return any_of(*found)


def _joined(left: list[Pattern | float], right: list[Pattern | float]) -> list[Pattern]:
    """Multiply two products; return no pattern if one of them consists of several numbers only."""
    for first, second in ((left, right), (right, left)):
        if len(first) == 1 and not isinstance(first[0], Pattern):
            return [times(product(*second), first[0])] if any(isinstance(each, Pattern) for each in second) else []
    if not any(isinstance(each, Pattern) for each in left) or not any(isinstance(each, Pattern) for each in right):
        return []
    return [is_op("Mul")(product(*left), product(*right))]


def square(value: Pattern) -> Pattern:
    """Match the square of a value."""
    return is_op("Pow")(value, is_number(2)) | is_op("Mul")(value, value)


def cube(value: Pattern) -> Pattern:
    """Match the third power of a value."""
    return is_op("Pow")(value, is_number(3)) | is_op("Mul")(value, square(value))


def over_root(value: Pattern, radicand: Pattern) -> Pattern:
    """Match a value divided by the square root of another."""
    root = is_op("Sqrt")(radicand) | is_op("Pow")(radicand, is_number(0.5))
    inverse = is_op("Reciprocal")(root) | is_op("Div")(is_number(1), root) | is_op("Pow")(radicand, is_number(-0.5))
    return is_op("Div")(value, root) | is_op("Mul")(value, inverse)


def cast_of_floats(value: Pattern) -> Pattern:
    """Match a cast between floating-point types; exporters also write casts to the same type."""
    return is_op("Cast")(value).which(_between_floats, "between floating-point types")


def _between_floats(node: NodeContext) -> bool:
    specs = (node.inputs[0], node.outputs[0])
    return all(spec is not None and spec.dtype is not None and spec.dtype.is_floating_point() for spec in specs)
