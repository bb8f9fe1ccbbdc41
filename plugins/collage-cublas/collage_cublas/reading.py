"""What a match computes: its operands as they lie in memory, Transposes, factors and broadcasting taken in."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

import onnx_ir

from collage_core.contract import TensorSpec, Unsupported
from collage_core.patterns import Match
from collage_cublas.library import Compute, DataType, Epilogue
from collage_cublas.product import Operands, Product, described
from collage_cublas.strides import Strided

DTYPES: Mapping[str, DataType] = MappingProxyType(
    {"FLOAT": DataType.R_32F, "FLOAT16": DataType.R_16F, "BFLOAT16": DataType.R_16BF}
)
"""What is multiplied, by its name in ONNX; sums are float32 for all of them."""


def product_of(match: Match, *, activation: Epilogue, precision: str = "") -> Product | Unsupported:
    """The call a match comes to.

    Args:
        match: Of one of `patterns.FORMS`.
        activation: The form's.
        precision: The target's: `"tf32"`, or nothing for the model's own.

    Returns:
        The call, or why there is none.
    """
    if len(match.exits) > 1:
        return Unsupported(f"{', '.join(match.exits)} are read outside, and a call writes one result")
    node = match.node("product")
    result = node.outputs[0]
    specs = {name: match.spec(name) for name in ("a", "b", "bias", "residual") if name in match.captures}
    if reason := _odd_values({**specs, "product": result}):
        return Unsupported(reason)
    whole = match.graph.spec(match.value)
    if whole.shape != result.shape:
        return Unsupported(f"what is added to {list(result.static_shape)} makes it {list(whole.static_shape)}")
    dtype = DTYPES[result.dtype.name if result.dtype else ""]
    if precision == "tf32" and dtype != DataType.R_32F:
        return Unsupported("precision=tf32 is a way to multiply float32; other types are the plain target's")
    gemm = node.op_type == "Gemm"
    alpha, beta = (float(node.attribute(name, 1.0)) if gemm else 1.0 for name in ("alpha", "beta"))
    third = gemm and len(node.node.inputs) > 2
    if third and node.node.inputs[2] is match.captures.get("bias") and beta != 1.0:
        return Unsupported(f"beta is {beta:g}; a bias has no factor")
    operands = Operands(
        a=_matrix(match, "a", transposed=gemm and bool(node.attribute("transA", 0))),
        b=_matrix(match, "b", transposed=gemm and bool(node.attribute("transB", 0))),
        d=_like_result(Strided.row_major(result.static_shape), match),
        bias=_added(match, "bias", result),
        residual=_added(match, "residual", result),
    )
    of_gemm = third and node.node.inputs[2] is match.captures.get("residual")
    return described(
        operands,
        dtype=dtype,
        compute=Compute.TF32 if precision == "tf32" else Compute.F32,
        activation=activation,
        alpha=alpha,
        beta=beta if of_gemm else 1.0,
    )


def stored(match: Match, name: str) -> tuple[onnx_ir.Value, tuple[int, ...] | None]:
    """What is in memory of a captured operand, and the order in which a Transpose inside the match reads its axes."""
    value = match.captures[name]
    producer = match.producer(value)
    if producer is None or not match.nodes >> producer.index & 1:
        return value, None
    source = producer.node.inputs[0]
    assert source is not None
    rank = len(match.spec(name).static_shape)
    return source, tuple(producer.attribute("perm", tuple(reversed(range(rank)))))


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
    """A factor with its two axes; ONNX's MatMul gives a vector its second one."""
    value, order = stored(match, name)
    view = Strided.row_major(match.graph.spec(value).static_shape)
    if order is not None:
        view = view.permuted(order)
    if len(view.shape) == 1:
        return view.with_axis(0 if name == "a" else 1)
    return view.permuted((1, 0)) if transposed else view


def _added(match: Match, name: str, result: TensorSpec) -> Strided | None:
    if name not in match.captures:
        return None
    return _like_result(Strided.row_major(match.spec(name).static_shape).broadcast(result.static_shape), match)


def _like_result(view: Strided, match: Match) -> Strided:
    """A result with the axes of rows and columns that it lacks where a factor is a vector."""
    if len(match.spec("a").static_shape) == 1:
        view = view.with_axis(max(0, len(view.shape) - (len(match.spec("b").static_shape) > 1)))
    return view.with_axis(len(view.shape)) if len(match.spec("b").static_shape) == 1 else view
