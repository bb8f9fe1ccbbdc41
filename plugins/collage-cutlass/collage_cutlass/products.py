"""Describe matrix products with their epilogue."""

from __future__ import annotations

import math

from collage_core.contract import Unsupported
from collage_core.patterns import Match
from collage_cuda.forms import is_turned
from collage_cutlass.described import (
    MOST,
    MOST_SIDE_BY_SIDE,
    Described,
    along_one_axis,
    misaligned,
    operands_of,
    parts_of,
)
from collage_cutlass.problem import Gemm, Matrices, Source


def describe_product(match: Match, *, activation: str, source: Source, precision: str) -> Described | Unsupported:
    """Describe a product as one call.

    Args:
        match: Match of one of the forms of `matmul`.
        activation: A name of `ACTIVATIONS`.
        source: The form's use of the source tensor.
        precision: The target's precision.
    """
    parts = parts_of(match, ("a", "b"), "product", activation=activation, source=source, precision=precision)
    if isinstance(parts, Unsupported):
        return parts
    shape = parts.result.static_shape
    a, b = parts.specs["a"].static_shape, parts.specs["b"].static_shape
    if min(len(a), len(b)) < 2:
        return Unsupported("it multiplies a vector, not a matrix")
    *_, m, n = shape
    k, batch = a[-1], math.prod(shape[:-2])
    of_a, of_b = math.prod(a[:-2]), math.prod(b[:-2])
    if of_b == 1:  # one weight for all: the axes of the batch are rows
        m, batch, of_a = math.prod(a[:-1]), 1, 1
    elif a[:-2] != b[:-2] and of_a > 1:
        return Unsupported(f"its batch axes {list(a[:-2])} and {list(b[:-2])} are broadcast against each other")
    for name in ("bias", "scale"):
        if name in parts.specs and not along_one_axis(parts.specs[name].static_shape, shape, len(shape) - 1):
            return Unsupported(f"the {name} is not one number for each of the {n} columns")
    if max(m, n, k) > MOST or batch > MOST_SIDE_BY_SIDE:
        return Unsupported(f"{batch} products of [{m}, {k}] and [{k}, {n}] are more than a launch counts")
    if reason := misaligned(parts.numbers, {"k": k, "n": n}):
        return Unsupported(reason)
    turned = is_turned(match)
    rows = Matrices(n, m * n)
    beside = {Source.NONE: Matrices(0, 0), Source.SCALE: Matrices(0, 0)}.get(parts.chain.source, rows)
    problem = Gemm(
        m=m,
        n=n,
        k=k,
        batch=batch,
        a=Matrices(k, m * k if of_a > 1 else 0),
        b=Matrices(k if turned else n, k * n if batch > 1 else 0, by_columns=turned),
        result=rows,
        source=beside,
    )
    operands = operands_of(match, {"a": "a", "b": "b"})
    return Described(problem=problem, numbers=parts.numbers, chain=parts.chain, operands=operands)
