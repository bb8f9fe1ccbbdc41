"""Test whether a node is the operator that a pattern names, without its operands."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir

from collage_core.ir.operators.attribute_defaults import default_attribute
from collage_core.patterns.context import NodeContext
from collage_core.patterns.pattern import Operator

COMMUTATIVE = frozenset(
    {"Add", "Mul", "Max", "Min", "Sum", "Mean", "And", "Or", "Xor", "Equal", "BitwiseAnd", "BitwiseOr", "BitwiseXor"}
)
"""Operators of ai.onnx that are commutative."""


def is_commutative(node: onnx_ir.Node) -> bool:
    """Return whether a node's operator is commutative according to ONNX."""
    return node.domain in ("", "ai.onnx") and node.op_type in COMMUTATIVE


def unlike(pattern: Operator, node: NodeContext, value: onnx_ir.Value) -> str:
    """Explain why a node's output does not fit an operator pattern, operands aside; `""` if it does."""
    if (pattern.op_types and node.op_type not in pattern.op_types) or pattern.domain not in (None, node.domain):
        return f"{node.name} is {node.op_type}, not {pattern.words}"
    first, last = pattern.versions
    if (first is not None and node.version < first) or (last is not None and node.version > last):
        return f"{node.name} is {node.op_type} of version {node.version}, not {first or 'any'} to {last or 'any'}"
    if pattern.output is not None and node.node.outputs.index(value) != pattern.output:
        return f"{value.name!r} is not output {pattern.output} of {node.name}"
    for name, wanted in pattern.attributes.items():
        have = node.attribute(name)
        if have is None:
            have = default_attribute(node.op_type, name, node.version, node.domain)
        if not (wanted(have) if callable(wanted) else _equal(have, wanted)):
            return f"{node.name} has {name}={have!r}"
    unmet = [condition.meaning for condition in pattern.conditions if not condition.holds(node)]
    return f"{node.name} is not {unmet[0]}" if unmet else ""


def _equal(have: Any, wanted: Any) -> bool:
    """Compare two attribute values as ONNX does, with floats in float32 and one type of list."""
    if isinstance(have, np.ndarray) or isinstance(wanted, np.ndarray):
        return have is not None and np.array_equal(have, wanted)
    if isinstance(have, tuple) or isinstance(wanted, list | tuple):
        return (
            isinstance(have, tuple)
            and isinstance(wanted, list | tuple)
            and len(have) == len(wanted)
            and all(map(_equal, have, wanted))
        )
    if isinstance(have, float) and isinstance(wanted, int | float):
        return bool(np.float32(have) == np.float32(wanted))
    return bool(have == wanted)
