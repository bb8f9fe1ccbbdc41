"""Nodes that may be proposed to OpenVINO's CPU plugin, and cases where it deviates from ONNX."""

from __future__ import annotations

import onnx_ir

from collage_core.contract import Supported, TensorSpec, Unsupported
from collage_core.patterns import NodeContext

DOMAINS = frozenset({"", "ai.onnx", "com.microsoft"})
"""Domains its ONNX frontend has conversions for; `collage_query` asks the library about single operators."""

_NARROW_INTEGERS = frozenset(
    {onnx_ir.DataType.INT8, onnx_ir.DataType.UINT8, onnx_ir.DataType.INT16, onnx_ir.DataType.UINT16}
)
_ARITHMETIC = frozenset({"Add", "Sub", "Mul", "Neg", "Sum", "Pow", "Abs"})


def takes(node: NodeContext) -> Supported | Unsupported:
    """Return whether a node may be proposed."""
    if node.node.op_identifier() in node.graph.model.functions:
        return Supported()  # a function of the model: kernel functions come with its body in place of the call
    if node.domain not in DOMAINS:
        return Unsupported(f"OpenVINO's ONNX frontend knows no operators of the domain {node.domain!r}")
    for spec in (*node.inputs, *node.outputs):
        if spec is not None and spec.name and (reason := cannot_hold(spec)):
            return Unsupported(reason)
    if node.op_type in _ARITHMETIC and node.outputs[0].dtype in _NARROW_INTEGERS:
        # Seen with 2026.4.1: uint8 200 + 200 is 255, ONNX has 144.
        return Unsupported("8 and 16 bit integers saturate in OpenVINO where ONNX wraps around")
    return Supported()


def cannot_hold(spec: TensorSpec) -> str:
    """Return why the CPU plugin cannot hold a value; `""` if it can."""
    if spec.dtype is None:
        return f"{spec.name!r} is no tensor of a known type; OpenVINO has no sequences and optionals"
    if spec.dtype == onnx_ir.DataType.STRING:
        return f"{spec.name!r} holds strings, which the CPU plugin does not"
    if spec.dtype == onnx_ir.DataType.DOUBLE:
        # Seen with 2026.4.1: Exp(1.0) of float64 is 2.71828198.
        return f"{spec.name!r} is float64, which the CPU plugin computes in float32"
    return ""
