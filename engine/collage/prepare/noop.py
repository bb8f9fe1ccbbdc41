"""Recognise operators that return one of their inputs, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from collage_core.ir.io.inference import static_shape


def unchanged_input(node: ir.Node) -> ir.Value | None:
    """Return the input that the (only used) output of a standard node equals, or None."""
    rule = _RULES.get(node.op_type)
    if rule is None or not node.inputs or any(value.uses() for value in node.outputs[1:]):
        return None
    if any(value.is_graph_output() for value in node.outputs[1:]):
        return None
    return rule(node)


def _first(node: ir.Node) -> ir.Value | None:
    return node.inputs[0]


def _same_type(node: ir.Node) -> ir.Value | None:
    source = node.inputs[0]
    if source is None or source.dtype is None:
        return None
    return source if source.dtype == ir.DataType(node.attributes["to"].as_int()) else None


def _same_shape(node: ir.Node) -> ir.Value | None:
    """Return the input of a rearranging operator whose input and output shapes are equal: nothing moved."""
    source = node.inputs[0]
    shape = static_shape(source)
    return source if shape is not None and shape == static_shape(node.outputs[0]) else None


def _inference_dropout(node: ir.Node) -> ir.Value | None:
    training = node.inputs[2] if len(node.inputs) > 2 else None
    if training is None:
        return node.inputs[0]
    constant = constant_of(training)
    return node.inputs[0] if constant is not None and not constant.any() else None


def _only_operand(node: ir.Node) -> ir.Value | None:
    return node.inputs[0] if len(node.inputs) == 1 else None


def _only_part(node: ir.Node) -> ir.Value | None:
    """Return the only input of a Concat that has elements; all others are empty."""
    parts = []
    for value in node.inputs:
        shape = static_shape(value)
        if shape is None or 0 not in shape:
            parts.append(value)
    return parts[0] if len(parts) == 1 and static_shape(parts[0]) is not None else None


def _in_order(node: ir.Node) -> ir.Value | None:
    """Return the input of a Transpose that moves nothing in memory and keeps the shape.

    Axes of length 1 may be permuted.
    """
    source = node.inputs[0]
    shape = static_shape(source)
    if source is None or shape is None:
        return None
    order = list(node.attributes["perm"].as_ints()) if "perm" in node.attributes else list(range(len(shape)))[::-1]
    moving = [axis for axis in order if shape[axis] != 1]
    if moving == sorted(moving) and shape == tuple(shape[axis] for axis in order):
        return source
    return None


def _no_padding(node: ir.Node) -> ir.Value | None:
    """Return the input of a Pad whose amounts are all zero.

    The amounts themselves decide: a pad of +1 and -1 keeps the shape and moves the contents.
    """
    pads = constant_of(node.inputs[1]) if len(node.inputs) > 1 else None
    return node.inputs[0] if pads is not None and not pads.any() else None


def _whole_slice(node: ir.Node) -> ir.Value | None:
    """Return the input of a Slice that keeps everything.

    With positive steps, a slice of full length is the whole input; with negative steps it would be reversed.
    """
    if len(node.inputs) > 4 and node.inputs[4] is not None:
        steps = constant_of(node.inputs[4])
        if steps is None or (steps < 0).any():
            return None
    return _same_shape(node)


def _neutral(operand: float, *, either: bool) -> Callable[[ir.Node], ir.Value | None]:
    """Return a rule that detects a neutral operand: x*1, x/1, x-0, x**1.

    x+0 is not neutral: it turns -0.0 into 0.0.
    """

    def rule(node: ir.Node) -> ir.Value | None:
        first, second = node.inputs[0], node.inputs[1]
        for source, constant in ((first, second), (second, first))[: 2 if either else 1]:
            if source is None or constant is None or source.dtype != node.outputs[0].dtype:
                continue
            shape = static_shape(source)
            if shape is None or shape != static_shape(node.outputs[0]):
                continue
            value = constant_of(constant)
            if value is not None and value.size and np.all(value == operand):
                return source
        return None

    return rule


def constant_of(value: ir.Value | None) -> Any:
    """Return the array of a value known before any input is, if it is small enough to look at."""
    tensor = known_tensor(value)
    if tensor is None or tensor.size > 4096 or tensor.dtype == ir.DataType.STRING:
        return None
    return tensor.numpy()


def known_tensor(value: ir.Value | None) -> ir.TensorProtocol | None:
    """Return the tensor of a value known before any input is."""
    return None if value is None or value.is_graph_input() else value.const_value


_RULES: Mapping[str, Callable[[ir.Node], ir.Value | None]] = {
    "Cast": _same_type,
    "Concat": _only_part,
    "Div": _neutral(1, either=False),
    "Dropout": _inference_dropout,
    "Expand": _same_shape,
    "Flatten": _same_shape,
    "Identity": _first,
    "Max": _only_operand,
    "Mean": _only_operand,
    "Min": _only_operand,
    "Mul": _neutral(1, either=True),
    "Pad": _no_padding,
    "Pow": _neutral(1, either=False),
    "Reshape": _same_shape,
    "Slice": _whole_slice,
    "Squeeze": _same_shape,
    "Sub": _neutral(0, either=False),
    "Sum": _only_operand,
    "Tile": _same_shape,
    "Transpose": _in_order,
    "Unsqueeze": _same_shape,
}
