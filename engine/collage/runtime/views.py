"""Execute operators that only give a tensor another shape, in the runtime itself.

For a planned value they cost nothing: result and source are one place in memory. The functions here serve values
whose place or shape is known only at run time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from collage_core.contract import Unsupported

View = Callable[[Any], Any]


def view_of(node: ir.Node) -> View | Unsupported:
    """Return the view that a host node takes of its data input.

    Args:
        node: Identity, Reshape, Squeeze, Unsqueeze or Flatten whose further inputs are constants.

    Returns:
        The view function, or why the node is not a view.
    """
    if node.domain not in ("", "ai.onnx"):
        return Unsupported(f"{node.domain}::{node.op_type} is not a view")
    if node.op_type == "Identity":
        return lambda value: value
    if node.op_type == "Flatten":
        axis = node.attributes.get_int("axis", 1)
        return lambda value: _flatten(np.asarray(value), axis)
    if node.op_type not in ("Reshape", "Squeeze", "Unsqueeze"):
        return Unsupported(f"{node.op_type} is not a view")
    given = len(node.inputs) > 1 and node.inputs[1] is not None
    numbers = _second_input(node)
    if given and numbers is None:
        return Unsupported(f"the {'shape' if node.op_type == 'Reshape' else 'axes'} of {node.name!r} are not constant")
    if node.op_type == "Reshape":
        if numbers is None:
            return Unsupported(f"{node.name!r} has no shape")
        shape, keep_zeros = numbers, bool(node.attributes.get_int("allowzero", 0))
        return lambda value: _reshape(np.asarray(value), shape, keep_zeros)
    if node.op_type == "Unsqueeze":
        if numbers is None:
            return Unsupported(f"{node.name!r} has no axes")
        return lambda value: np.expand_dims(np.asarray(value), numbers)
    return lambda value: np.squeeze(np.asarray(value), numbers)


def _second_input(node: ir.Node) -> tuple[int, ...] | None:
    """Return the constant second input, or its equivalent attribute in operator sets below 13."""
    second = node.inputs[1] if len(node.inputs) > 1 else None
    if second is not None:
        constant = second.const_value
        return None if constant is None else tuple(int(number) for number in constant.numpy().reshape(-1))
    numbers = node.attributes.get_ints("axes")
    return None if numbers is None else tuple(numbers)


def _reshape(array: np.ndarray[Any, Any], shape: tuple[int, ...], keep_zeros: bool) -> np.ndarray[Any, Any]:
    if not keep_zeros:
        shape = tuple(array.shape[axis] if extent == 0 else extent for axis, extent in enumerate(shape))
    return array.reshape(shape)


def _flatten(array: np.ndarray[Any, Any], axis: int) -> np.ndarray[Any, Any]:
    axis = axis + array.ndim if axis < 0 else axis
    return array.reshape(math.prod(array.shape[:axis]), math.prod(array.shape[axis:]))
