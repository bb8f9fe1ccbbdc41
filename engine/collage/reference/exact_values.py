"""Say which integers of a graph every correct kernel computes alike."""

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


def exact_values(graph: ir.Graph) -> frozenset[ir.Value]:
    """Return the integer and boolean values that no rounding, tie or undefined result decides.

    What the graph is given is exact: all kernels get the same.

    Args:
        graph: Any graph; nodes topologically sorted.
    """
    exact: set[ir.Value] = set()
    inexact: set[ir.Value] = set()
    for node in graph:
        standard = node.domain in ("", "ai.onnx")
        for value in node.outputs:
            allowed = _MOVING if _is_floating(value) else _EXACT
            if not standard or node.op_type not in allowed or not inexact.isdisjoint(filter(None, node.inputs)):
                inexact.add(value)
            elif value.dtype is not None and not _is_floating(value):
                exact.add(value)
    return frozenset(exact)


def _is_floating(value: ir.Value) -> bool:
    return value.dtype is None or not (value.dtype.is_integer() or value.dtype == ir.DataType.BOOL)
