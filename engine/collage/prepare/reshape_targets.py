"""Replace targets of Reshape that are computed from free dimensions by constants, where those say the same."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import onnx_ir as ir

from collage.prepare.fold import fresh_name
from collage.prepare.noop import known_tensor
from collage.prepare.symbolic import is_known


def make_targets_constant(graph: ir.Graph, symbols: Collection[str]) -> bool:
    """Give each Reshape a constant target if one is equivalent whatever the free dimensions are, in place.

    An exporter writes a target as Shape, Gather and Concat. Where all dimensions of the result but one are known, or
    are those of the operand at the same axes, the one follows from the number of elements. In a constant target these
    are the numbers, 0 (as in the operand) and -1 (what is left). Free dimensions are taken to be at least 1.

    Args:
        graph: The graph, shapes inferred.
        symbols: Names of the free dimensions of the model's inputs. Those that inference makes up are not compared.

    Returns:
        Whether a target was replaced.
    """
    changed = False
    for node in graph:
        if node.op_type != "Reshape" or node.domain not in ("", "ai.onnx"):
            continue
        target = _constant_target(node, symbols)
        if target is None:
            continue
        name = fresh_name(graph, f"{node.outputs[0].name}.target")
        value = ir.val(name, const_value=ir.tensor(np.array(target, np.int64), name=name))
        graph.register_initializer(value)
        node.replace_input_with(1, value)
        changed = True
    return changed


def _constant_target(node: ir.Node, symbols: Collection[str]) -> list[int] | None:
    operand, given = node.inputs[0], node.inputs[1]
    result = node.outputs[0].shape
    if operand is None or operand.shape is None or result is None or known_tensor(given) is not None:
        return None
    if node.attributes.get_int("allowzero", 0):
        return None  # 0 is a number there
    target = []
    for axis, dim in enumerate(result):
        if isinstance(dim, int):
            target.append(dim)
        elif axis < len(operand.shape) and is_known(dim, symbols) and operand.shape[axis] == dim:
            target.append(0)
        else:
            target.append(-1)
    # with an extent of 0, which is written as 0 too, nothing is left to divide
    return target if target.count(-1) <= 1 and 0 not in (dim for dim in result if isinstance(dim, int)) else None
