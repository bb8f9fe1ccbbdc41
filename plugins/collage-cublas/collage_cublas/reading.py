"""Read a match as one product: Transposes, views, factors and broadcasting are folded into its operands.

A factor becomes part of `alpha`, which scales the float32 sum of products before anything is added: equal
in exact arithmetic, but rounded in a different order. A divisor's reciprocal and all factors are multiplied
in double precision and rounded once, to float32, so the relative error of `alpha` is at most 2^-24, and 0
for powers of two; that of a quotient is the same. The summation order has a larger effect, and a model that
scales 16-bit operands loses more. Factors are therefore accepted on every target, except for 0, with which
the library does not read the operands (infinities would vanish), and for values that float32 cannot
represent. Operands that a target's precision rounds to 16 bits are rounded before they are scaled.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import onnx_ir

from collage_core.contract import TensorSpec, Unsupported
from collage_core.patterns import Match, NodeContext
from collage_cublas.library import DataType, Epilogue
from collage_cublas.product import Operands, Product, described
from collage_cublas.strides import Strided
from collage_cublas.ways import WAYS, Way

DTYPES: Mapping[str, DataType] = MappingProxyType(
    {"FLOAT": DataType.R_32F, "FLOAT16": DataType.R_16F, "BFLOAT16": DataType.R_16BF}
)
"""Types of the factors, by ONNX name; sums are float32 for all of them."""


def product_of(
    match: Match, *, activation: Epilogue, precision: str = "", way: Way | None = None
) -> Product | Unsupported:
    """Return the call for a match.

    Args:
        match: Match of one of `patterns.FORMS`.
        activation: The form's activation.
        precision: The target's, one of `WAYS`; empty for the model's own.
        way: Which of the precision's ways; they differ in types only.

    Returns:
        The call, or why there is none.
    """
    if len(match.exits) > 1:
        return Unsupported(f"{', '.join(match.exits)} are read outside, and a call writes one result")
    node = match.node("product")
    result = node.outputs[0]
    specs = {name: match.spec(name) for name in ("a", "b", "bias", "residual") if name in match.captures}
    whole = match.graph.spec(match.value)
    if reason := _odd_values({**specs, "product": result, "whole": whole}):
        return Unsupported(reason)
    if math.prod(whole.static_shape) != math.prod(result.static_shape):
        return Unsupported(f"what is added to {list(result.static_shape)} makes it {list(whole.static_shape)}")
    dtype = DTYPES[result.dtype.name if result.dtype else ""]
    way = way or WAYS[precision][0]
    if precision and dtype != DataType.R_32F:
        return Unsupported(f"precision={precision} is a way to multiply float32; other types are the plain target's")
    for name in ("a", "b"):
        if len(match.graph.spec(stored(match, name)[0]).static_shape) != len(specs[name].static_shape):
            return Unsupported(f"a factor of {name} gives it more axes")
    gemm = node.op_type == "Gemm"
    alpha, beta = (float(node.attribute(name, 1.0)) if gemm else 1.0 for name in ("alpha", "beta"))
    third = gemm and len(node.node.inputs) > 2
    if third and node.node.inputs[2] is match.captures.get("bias") and beta != 1.0:
        return Unsupported(f"beta is {beta:g}; a bias has no factor")
    if factors := _factors(match):
        alpha *= math.prod(factors)
        if not np.finfo(np.float32).tiny <= abs(alpha) <= np.finfo(np.float32).max:
            return Unsupported(f"its factors come to {alpha:g}, which is 0 or not a number float32 can say")
    added: dict[str, Strided | None] = {}
    for name in ("bias", "residual"):
        found = _added(match, name, result)
        if isinstance(found, Unsupported):
            return found
        added[name] = found
    operands = Operands(
        a=_matrix(match, "a", transposed=gemm and bool(node.attribute("transA", 0))),
        b=_matrix(match, "b", transposed=gemm and bool(node.attribute("transB", 0))),
        d=_like_result(Strided.row_major(result.static_shape), match),
        **added,
    )
    of_gemm = third and node.node.inputs[2] is match.captures.get("residual")
    return described(
        operands,
        dtype=dtype,
        factors=way.factors or dtype,
        compute=way.compute,
        activation=activation,
        alpha=alpha,
        beta=beta if of_gemm else 1.0,
    )


def stored(match: Match, name: str) -> tuple[onnx_ir.Value, tuple[int, ...] | None]:
    """Return the value in memory of a captured operand, and the axis order of a Transpose inside the match."""
    value, order = match.captures[name], None
    numbers = [match.captures.get(f"{name}_{role}") for role in ("factor", "divisor")]
    while (producer := match.producer(value)) is not None and match.nodes >> producer.index & 1:
        if producer.op_type == "Transpose":
            rank = len(match.spec(name).static_shape)
            order = tuple(producer.attribute("perm", tuple(reversed(range(rank)))))
        value = next(each for each in producer.node.inputs if each is not None and each not in numbers)
    return value, order


def _factors(match: Match) -> list[float]:
    """Return the factors of `a`, `b` and the product; a division by 0 gives infinity."""
    found = []
    for name in ("a", "b", "product"):
        if (factor := match.constant(f"{name}_factor")) is not None:
            found.append(float(factor.reshape(())))
        if (divisor := match.constant(f"{name}_divisor")) is not None:
            number = float(divisor.reshape(()))
            found.append(1 / number if number else math.inf)
    return found


def _odd_values(specs: Mapping[str, TensorSpec]) -> str:
    dtypes = {spec.dtype.name if spec.dtype else "no tensor" for spec in specs.values()}
    if len(dtypes) > 1 or not dtypes <= set(DTYPES):
        return f"it is about {' and '.join(sorted(dtypes))}; one of {', '.join(DTYPES)} is multiplied and added"
    for spec in specs.values():
        if spec.shape is None or None in spec.shape:
            return f"the shape of {spec.name!r} is not known"
        if not math.prod(spec.static_shape):
            return f"{spec.name!r} {list(spec.static_shape)} has no elements"
    return ""


def _matrix(match: Match, name: str, *, transposed: bool) -> Strided:
    """Return a factor with its two axes; a vector gets its second one as in ONNX's MatMul."""
    value, order = stored(match, name)
    view = Strided.row_major(match.graph.spec(value).static_shape)
    if order is not None:
        view = view.permuted(order)
    if len(view.shape) == 1:
        return view.with_axis(0 if name == "a" else 1)
    return view.permuted((1, 0)) if transposed else view


def _added(match: Match, name: str, result: TensorSpec) -> Strided | Unsupported | None:
    """Return the view of an addend that has an element for each element of the product.

    It is broadcast to the value it is added to, which may be a view of the product.
    """
    if name not in match.captures:
        return None
    value = match.captures[name]
    producer = match.producer(value)
    if producer is not None and match.nodes >> producer.index & 1:
        return Unsupported(f"{producer.name}, which is inside, is added to itself")
    sums = [user for user in match.users(value) if match.nodes >> user.index & 1 and _adds(user, value)]
    shape = sums[0 if name == "bias" else -1].outputs[0].static_shape
    view = Strided.row_major(match.spec(name).static_shape).broadcast(shape).reshaped(result.static_shape)
    if view is None:
        return Unsupported(
            f"the {name} is repeated along {list(shape)}, a view of the product, so that no strides along "
            f"{list(result.static_shape)} say it"
        )
    return _like_result(view, match)


def _adds(node: NodeContext, value: onnx_ir.Value) -> bool:
    """Return whether a node adds a value to another, and not only multiplies by it."""
    return node.op_type == "Add" or (node.op_type == "Gemm" and value is (*node.node.inputs, None, None, None)[2])


def _like_result(view: Strided, match: Match) -> Strided:
    """Return a result with the row and column axes that it lacks where a factor is a vector."""
    if len(match.spec("a").static_shape) == 1:
        view = view.with_axis(max(0, len(view.shape) - (len(match.spec("b").static_shape) > 1)))
    return view.with_axis(len(view.shape)) if len(match.spec("b").static_shape) == 1 else view
