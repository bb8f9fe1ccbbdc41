"""Products that are one call of cuBLASLt: with a bias along the columns, then Relu or Gelu."""

from __future__ import annotations

from collections.abc import Mapping

from collage_core.contract import Supported, TensorSpec, Unsupported
from collage_core.patterns import Match, NodeContext, Pattern, PatternTable, is_op, wildcard
from tests.drafts.cublaslt.library import DataType, Epilogue

DTYPES: Mapping[str, DataType] = {
    "FLOAT": DataType.R_32F,
    "FLOAT16": DataType.R_16F,
    "BFLOAT16": DataType.R_16BF,
}


def _biased(product: Pattern) -> Pattern:
    return product.optional(lambda inner: is_op("Add")(inner, wildcard().named("bias")))


def _activated(product: Pattern) -> Pattern:
    # its Gelu is the tanh form (cublasLt.h, CUBLASLT_EPILOGUE_GELU), and another function than ONNX's default
    return product.optional(
        lambda inner: (
            is_op("Relu")(inner).named("relu") | is_op("Gelu").has_attr(approximate="tanh")(inner).named("gelu")
        )
    )


def _operands(operator: str, *further: Pattern) -> Pattern:
    return is_op(operator)(wildcard().named("a"), wildcard().named("b"), *further).named("product")


PATTERNS: Mapping[str, Pattern] = {
    "cublaslt.matmul": _activated(_biased(_operands("MatMul"))),
    "cublaslt.gemm": _activated(_operands("Gemm", wildcard().named("bias")) | _biased(_operands("Gemm"))),
}


def register(table: PatternTable) -> None:
    """Fills the table of a target."""
    for name, pattern in PATTERNS.items():
        table.pattern(name, pattern, check=takes, attrs_getter=lambda match: {"epilogue": epilogue(match).name or ""})


def takes(match: Match) -> Supported | Unsupported:
    """Whether a match is one call."""
    a, b, product = match.spec("a"), match.spec("b"), match.node("product")
    if len(match.exits) > 1:
        return Unsupported(f"{', '.join(match.exits)} are read outside, and it writes one output")
    dtypes = {spec.dtype.name if spec.dtype else "no tensor" for spec in (a, b)}
    if len(dtypes) > 1 or not dtypes <= set(DTYPES):
        return Unsupported(f"operands are {' and '.join(sorted(dtypes))}; multiplies {', '.join(DTYPES)}")
    if (reason := _unfit_shapes(a, b, product)) or (reason := _unfit_bias(match, b, product)):
        return Unsupported(reason)
    return Supported()


def epilogue(match: Match) -> Epilogue:
    """What is done to the product before it is written."""
    flags = [Epilogue.BIAS] if "bias" in match.captures else []
    flags += [Epilogue.RELU] if "relu" in match.captures else []
    flags += [Epilogue.GELU] if "gelu" in match.captures else []
    whole = Epilogue(0)
    for flag in flags:
        whole |= flag
    return whole or Epilogue.DEFAULT


def _unfit_shapes(a: TensorSpec, b: TensorSpec, product: NodeContext) -> str:
    if a.shape is None or b.shape is None or None in (*a.shape, *b.shape):
        return "shapes are not known"
    if len(b.shape) != 2 or len(a.shape) < 2:
        return f"{a.name!r} {list(a.shape)} times {b.name!r} {list(b.shape)} is a batch of products or a vector's"
    if not a.nbytes or not b.nbytes:
        return "nothing is multiplied"
    beta = product.attribute("beta", 1.0)
    if beta != 1.0 and product.op_type == "Gemm" and len(product.inputs) > 2:
        return f"beta is {beta}; its bias has no factor"
    return ""


def _unfit_bias(match: Match, b: TensorSpec, product: NodeContext) -> str:
    if "bias" not in match.captures:
        return ""
    bias = match.spec("bias")
    columns = product.outputs[0].static_shape[-1]
    if bias.dtype != b.dtype or bias.shape is None:
        return f"the bias {bias.name!r} is no tensor of the operands' type"
    if bias.shape[-1:] != (columns,) or any(extent != 1 for extent in bias.shape[:-1]):
        return f"the bias {bias.name!r} is {list(bias.shape)}; it adds one along the {columns} columns"
    return ""
