"""Describe matrix products with their epilogue as cuDNN graphs.

cuDNN multiplies `[batch, m, k]` by `[batch, k, n]`, where either batch may be 1; strides are arbitrary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from collage_core.contract import Unsupported
from collage_core.patterns import Match
from collage_cuda.forms import is_turned
from collage_cudnn.described import Described, Drawing, common_dtype, one_result
from collage_cudnn.epilogue import along_one_axis, finish
from collage_cudnn.graph import DataType, Layout, row_major


def describe_product(match: Match, layout: Layout, *, activation: str, exact: bool) -> Described | Unsupported:
    """Describe the graph of activation(a b + bias + residual).

    Args:
        match: Match of `matmul_pattern` with `transposed=None`.
        layout: Ignored.
        activation: A name of `ACTIVATIONS`; empty for none.
        exact: Whether float32 is multiplied without conversion to TF32.
    """
    if (outside := one_result(match)) is not None:
        return outside
    node = match.node("product")
    result = node.outputs[0]
    operands = {name: match.spec(name) for name in ("a", "b", "bias", "residual") if name in match.captures}
    dtype = common_dtype({**operands, "result": result, "whole": match.graph.spec(match.value)})
    if isinstance(dtype, Unsupported):
        return dtype
    if exact and dtype is DataType.FLOAT:
        return Unsupported("cuDNN multiplies float32 matrices by tensor cores, which round to TF32: precision=tf32")
    shape = result.static_shape
    a, b = operands["a"].static_shape, operands["b"].static_shape
    if min(len(a), len(b)) < 2:
        return Unsupported("it multiplies a vector, not a matrix")
    if match.graph.spec(match.value).static_shape != shape:
        return Unsupported(f"what is added to {list(shape)} makes it larger")
    *_, m, n = shape
    turned = is_turned(match)
    rows_of_a, batch = math.prod(a[:-1]), math.prod(shape[:-2])
    if math.prod(b[:-2]) == 1:  # one weight for all: the axes of the batch are rows
        left, right, out = (1, rows_of_a, a[-1]), (1, a[-1], n), (1, rows_of_a, n)
    elif a[:-2] == b[:-2] or math.prod(a[:-2]) == 1:
        left, right, out = (math.prod(a[:-2]), m, a[-1]), (batch, a[-1], n), (batch, m, n)
    else:
        return Unsupported(f"its batch axes {list(a[:-2])} and {list(b[:-2])} are broadcast against each other")
    if math.prod(out) != math.prod(shape):
        return Unsupported(f"its batch axes {list(a[:-2])} and {list(b[:-2])} are broadcast against each other")
    if "bias" in operands and not along_one_axis(operands["bias"].static_shape, shape, len(shape) - 1):
        return Unsupported(f"the bias is not one number for each of the {n} columns")
    if "residual" in operands and operands["residual"].static_shape != shape:
        return Unsupported(f"what is added has the shape {list(operands['residual'].static_shape)}, not {list(shape)}")
    drawing = Drawing(match, dtype)
    first = drawing.input("a", left, row_major(left), match.captures["a"])
    lies = _exchanged(right) if turned else row_major(right)
    second = drawing.input("b", right, lies, match.captures["b"], stored=lies)
    bias = residual = None
    if "bias" in operands:
        bias = drawing.input("bias", (1, 1, n), row_major((1, 1, n)), match.captures["bias"])
    if "residual" in operands:
        residual = drawing.input("residual", out, row_major(out), match.captures["residual"])
    value = drawing.add("matmul", out, row_major(out), {"A": first, "B": second})
    refusal = finish(drawing, match, value, bias, residual, activation)
    return drawing.done(out) if refusal is None else refusal


def _exchanged(dims: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of `[batch, k, n]` stored as `[batch, n, k]`."""
    _, k, n = dims
    return (k * n, 1, k)
