"""Quantisation in ONNX: nodes that convert between low-bit and real numbers, and nodes that depend on them."""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir

from collage_core.ir.values.content import constant_of

_DOMAINS = frozenset({"", "ai.onnx", "com.microsoft"})
"""Domains of the quantisation operators.

ONNX Runtime's quantiser uses its own domain where ONNX's operators lack an element type.
"""


def is_quantize(node: onnx_ir.Node) -> bool:
    """Return whether a node quantises real numbers (`QuantizeLinear`)."""
    return node.op_type == "QuantizeLinear" and node.domain in _DOMAINS


def is_dequantize(node: onnx_ir.Node) -> bool:
    """Return whether a node dequantises to real numbers (`DequantizeLinear`)."""
    return node.op_type == "DequantizeLinear" and node.domain in _DOMAINS


def roundings(nodes: Iterable[onnx_ir.Node]) -> dict[onnx_ir.Value, int]:
    """Return the values that depend on quantisation rounding, with the number of successive roundings.

    Two correct computations of such a value may differ by some quanta. Weights do not count, because every toolchain
    rounds them alike.

    Args:
        nodes: Nodes in topological order; values produced elsewhere are assumed to be exact.

    Returns:
        Largest number of successive roundings before each value.
    """
    found: dict[onnx_ir.Value, int] = {}
    for node in nodes:
        read = [value for value in node.inputs if value is not None]
        rounds = is_quantize(node) or (node.op_type == "DynamicQuantizeLinear" and node.domain in _DOMAINS)
        count = max((found.get(value, 0) for value in read), default=0)
        if rounds and constant_of(read[0]) is None:
            count += 1
        if count:
            found.update(dict.fromkeys(node.outputs, count))
    return found
