"""Nodes that may be proposed to OpenVINO's CPU plugin, and cases where it deviates from ONNX."""

from __future__ import annotations

import onnx_ir

from collage_core.contract import Supported, TensorSpec, Unsupported
from collage_core.ir.graph.walk import bodies
from collage_core.ir.values.content import constant_of
from collage_core.patterns import NodeContext

DOMAINS = frozenset({"", "ai.onnx", "com.microsoft"})
"""Domains its ONNX frontend has conversions for; `collage_query` asks the library about single operators."""

_NARROW_INTEGERS = frozenset(
    {onnx_ir.DataType.INT8, onnx_ir.DataType.UINT8, onnx_ir.DataType.INT16, onnx_ir.DataType.UINT16}
)
_WIDE_INTEGERS = frozenset(
    {onnx_ir.DataType.INT32, onnx_ir.DataType.UINT32, onnx_ir.DataType.INT64, onnx_ir.DataType.UINT64}
)
_ARITHMETIC = frozenset({"Add", "Sub", "Mul", "Neg", "Sum", "Pow", "Abs"})
_IN_FLOAT32 = frozenset({"Div", "Gemm", "MatMul", "Mod", "Pow"})
"""Operators that it computes in float32 for integers of 32 and 64 bits, too."""
_POSITIONS = frozenset({"ArgMax", "ArgMin", "NonMaxSuppression", "NonZero", "Shape", "Size"})
"""Operators whose outputs are sizes or positions: float32 holds these."""


def takes(node: NodeContext) -> Supported | Unsupported:
    """Return whether a node may be proposed."""
    if node.node.op_identifier() in node.graph.model.functions:
        return Supported()  # kernel functions come with its body in place of the call, and `lower` looks at that
    for spec in (*node.inputs, *node.outputs):
        if spec is not None and spec.name and (reason := cannot_hold(spec)):
            return Unsupported(reason)
    operands = [value for value in node.node.inputs if value is not None]
    if node.op_type in _IN_FLOAT32 and _is_wide(node.node.outputs[0]) and not all(map(_is_size, operands)):
        # Seen with 2026.4.1: int32 1234567890 modulo 13 is 0, ONNX has 10.
        return Unsupported("integers of 32 and 64 bits are divided and multiplied in float32, exact up to 2^24 only")
    reason = deviation(node.node, node.graph.model)
    return Unsupported(reason) if reason else Supported()


def _is_wide(value: onnx_ir.Value) -> bool:
    return value.dtype in _WIDE_INTEGERS


def _is_size(value: onnx_ir.Value) -> bool:
    """Return whether a value follows from sizes, positions and constants alone, not from what a caller gives."""
    waiting, seen = [value], {value}
    while waiting:
        found = waiting.pop()
        node = found.producer()
        if constant_of(found) is not None or (node is not None and node.op_type in _POSITIONS):
            continue
        if node is not None and node.op_type == "TopK" and found is node.outputs[1]:
            continue
        before = [each for each in (() if node is None else node.inputs) if each is not None and _is_wide(each)]
        if not before:
            return False
        waiting += [each for each in before if each not in seen]
        seen.update(before)
    return True


def deviation(node: onnx_ir.Node, model: onnx_ir.Model) -> str:
    """Return why a node, or one in its bodies, is not for the CPU plugin; `""` if it is.

    What a body computes may not be compared with the reference: of an If, one branch runs. So bodies are looked at as
    closely as the graph is.

    Args:
        node: The node.
        model: Has the functions that it may call; what these call is not looked at.
    """
    if node.op_identifier() in model.functions:
        return ""
    if node.domain not in DOMAINS:
        return f"OpenVINO's ONNX frontend knows no operators of the domain {node.domain!r}"
    dtype = node.outputs[0].dtype
    if node.op_type == "BitShift":
        return "BitShift is a product or a quotient in OpenVINO, not exact for all integers"
    if node.op_type in _ARITHMETIC and dtype in _NARROW_INTEGERS:
        # Seen with 2026.4.1: uint8 200 + 200 is 255, ONNX has 144.
        return "8 and 16 bit integers saturate in OpenVINO where ONNX wraps around"
    for inner in (inner for body in bodies(node) for inner in body):
        for value in (*inner.inputs, *inner.outputs):
            if value is not None and value.dtype is not None and (reason := _cannot_hold(str(value.name), value.dtype)):
                return reason
        if reason := deviation(inner, model):
            return reason
    return ""


def cannot_hold(spec: TensorSpec) -> str:
    """Return why the CPU plugin cannot hold a value; `""` if it can."""
    if spec.dtype is None:
        return f"{spec.name!r} is no tensor of a known type; OpenVINO has no sequences and optionals"
    return _cannot_hold(spec.name, spec.dtype)


def _cannot_hold(name: str, dtype: onnx_ir.DataType) -> str:
    if dtype == onnx_ir.DataType.STRING:
        return f"{name!r} holds strings, which the CPU plugin does not"
    if dtype == onnx_ir.DataType.DOUBLE:
        # Seen with 2026.4.1: Exp(1.0) of float64 is 2.71828198.
        return f"{name!r} is float64, which the CPU plugin computes in float32"
    return ""
