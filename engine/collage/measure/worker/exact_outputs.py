"""Say which outputs of a function every correct kernel computes alike, to the last bit."""

from __future__ import annotations

from typing import Final

import onnx_ir as ir

_MOVING: Final = frozenset(
    {"Compress", "Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity"}
    | {"Pad", "Reshape", "ReverseSequence", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Trilu"}
    | {"Unsqueeze", "Where"}
)
"""Operators whose output elements are elements of their inputs."""
_EXACT: Final = _MOVING | frozenset(
    {"Abs", "Add", "Clip", "ConvInteger", "CumSum", "MatMulInteger", "Max", "Min", "Mul", "Neg", "ReduceMax"}
    | {"ReduceMin", "ReduceSum", "Sign", "Sub", "Sum"}
    | {"And", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Not", "Or", "Xor"}
    | {"Equal", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual", "NonZero", "OneHot"}
    | {"Shape", "Size"}
)
"""Operators whose integers and booleans follow from their inputs alone. Not among them: what leaves ties open (ArgMax,
TopK), what divides, and casts, whose result is undefined where a number does not fit.
"""


def exact_outputs(graph: ir.Graph) -> frozenset[str]:
    """Return the names of the integer and boolean outputs that no rounding, tie or undefined result decides.

    What the function is given is exact: all kernels get the same.

    Args:
        graph: Graph of the function; nodes topologically sorted.
    """
    inexact: set[ir.Value] = set()
    for node in graph:
        standard = node.domain in ("", "ai.onnx")
        for value in node.outputs:
            allowed = _MOVING if _is_floating(value) else _EXACT
            if not standard or node.op_type not in allowed or not inexact.isdisjoint(filter(None, node.inputs)):
                inexact.add(value)
    return frozenset(
        str(value.name) for value in graph.outputs if value not in inexact and not _is_floating(value) and value.dtype
    )


def _is_floating(value: ir.Value) -> bool:
    return value.dtype is None or not (value.dtype.is_integer() or value.dtype == ir.DataType.BOOL)
