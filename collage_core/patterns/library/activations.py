"""GELU and SiLU as exporters write them.

GELU (Hendrycks and Gimpel, 2016) is x * Phi(x), Phi being the normal distribution's cumulative function. It is computed
with erf, or with one of two approximations of the same paper: by tanh, or by the logistic function. Models write the
factors in any order, the cube as a power or as products, and the constants in the precision of their type.
"""

from __future__ import annotations

import math
from typing import Literal

from collage_core.patterns import Pattern, is_op, wildcard
from collage_core.patterns.library.arithmetic import cube, is_number, product, square, times
from collage_core.patterns.library.epilogue import any_of


def gelu_pattern(of: Pattern | None = None, *, approximate: Literal["none", "tanh"] | None = None) -> Pattern:
    """Match GELU by erf or by tanh, decomposed or as an operator.

    0.5 * x * (1 + erf(x / sqrt(2))), or 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))).

    Args:
        of: Pattern of x; by default any value, captured as `x`.
        approximate: Which of the two forms, named as by ONNX's operator; None for either.
    """
    x = wildcard().named("x") if of is None else of
    ways = [
        *([_by_erf(x)] if approximate in (None, "none") else []),
        *([_by_tanh(x)] if approximate in (None, "tanh") else []),
    ]
    operator = is_op("Gelu")(x)
    return any_of(operator if approximate is None else operator.has_attr(approximate=approximate), *ways)


def quick_gelu_pattern(of: Pattern | None = None) -> Pattern:
    """Match GELU approximated by the logistic function, as in CLIP: x * sigmoid(1.702 * x).

    Args:
        of: Pattern of x; by default any value, captured as `x`.
    """
    x = wildcard().named("x") if of is None else of
    return is_op("Mul")(x, is_op("Sigmoid")(times(x, 1.702))) | is_op("Swish")(x).has_attr(alpha=1.702)


def silu_pattern(of: Pattern | None = None) -> Pattern:
    """Match SiLU, also called Swish: x * sigmoid(x), or the operator.

    Args:
        of: Pattern of x; by default any value, captured as `x`.
    """
    x = wildcard().named("x") if of is None else of
    return is_op("Mul")(x, is_op("Sigmoid")(x)) | is_op("Swish")(x).has_attr(alpha=1.0)


def _by_erf(x: Pattern) -> Pattern:
    erf = is_op("Erf")(times(x, 1 / math.sqrt(2)))
    return product(x, is_op("Add")(erf, is_number(1)), 0.5)


def _by_tanh(x: Pattern) -> Pattern:
    outer, inner = math.sqrt(2 / math.pi), 0.044715
    polynomial = times(is_op("Add")(x, times(cube(x), inner)), outer)
    # the same with x taken out, which saves a multiplication: `gelu_fast` of transformers
    even = times(square(x), inner) | is_op("Mul")(times(x, inner), x)
    factored = product(x, is_op("Add")(even, is_number(1)), outer)
    tanh = is_op("Tanh")(polynomial | factored)
    return product(x, is_op("Add")(tanh, is_number(1)), 0.5)
