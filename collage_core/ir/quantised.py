"""Quantisation as ONNX writes it: which nodes convert between few bits and real numbers, and what depends on them."""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir

from collage_core.ir.content import constant_of

_DOMAINS = frozenset({"", "ai.onnx", "com.microsoft"})
"""ONNX Runtime's quantiser writes its own domain where ONNX's operators lack an element type."""


def is_quantize(node: onnx_ir.Node) -> bool:
    """Whether a node rounds real numbers to few bits."""
    return node.op_type == "QuantizeLinear" and node.domain in _DOMAINS


def is_dequantize(node: onnx_ir.Node) -> bool:
    """Whether a node makes real numbers of few bits."""
    return node.op_type == "DequantizeLinear" and node.domain in _DOMAINS


def rounded_values(nodes: Iterable[onnx_ir.Node]) -> frozenset[onnx_ir.Value]:
    """Values in which rounding to few bits has a say: two right computations of them may be a quantum apart.

    Weights, which every toolchain rounds alike, do not count.

    Args:
        nodes: Nodes in an order in which they can run; what they read from elsewhere is taken to be exact.
    """
    found: set[onnx_ir.Value] = set()
    for node in nodes:
        read = [value for value in node.inputs if value is not None]
        rounds = is_quantize(node) or (node.op_type == "DynamicQuantizeLinear" and node.domain in _DOMAINS)
        if not found.isdisjoint(read) or (rounds and constant_of(read[0]) is None):
            found.update(node.outputs)
    return frozenset(found)
