"""Quantisation as ONNX writes it: which nodes convert between few bits and real numbers, and what depends on them."""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir

from collage_core.ir.values.content import constant_of

_DOMAINS = frozenset({"", "ai.onnx", "com.microsoft"})
"""ONNX Runtime's quantiser writes its own domain where ONNX's operators lack an element type."""


def is_quantize(node: onnx_ir.Node) -> bool:
    """Whether a node rounds real numbers to few bits."""
    return node.op_type == "QuantizeLinear" and node.domain in _DOMAINS


def is_dequantize(node: onnx_ir.Node) -> bool:
    """Whether a node makes real numbers of few bits."""
    return node.op_type == "DequantizeLinear" and node.domain in _DOMAINS


def roundings(nodes: Iterable[onnx_ir.Node]) -> dict[onnx_ir.Value, int]:
    """Values in which rounding to few bits has a say, so that two right computations of them may be quanta apart.

    Weights, which every toolchain rounds alike, do not count.

    Args:
        nodes: Nodes in an order in which they can run; what they read from elsewhere is taken to be exact.

    Returns:
        How many roundings in a row each is behind, at most.
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
