"""Types and shapes of the inputs of a model's functions, which files do not keep.

ONNX describes values inside a function since IR version 10 (`FunctionProto.value_info`), but onnx_ir writes only those
that nodes produce (seen with 1.0 and 1.1). What a call passes is described where the call is.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import onnx_ir as ir


def describe_function_inputs(model: ir.Model) -> None:
    """Give inputs of functions the type and shape of what calls pass to them, in place.

    An input that is described already keeps what it has. One gets nothing to which two calls pass values of different
    types or shapes, or of which a call says nothing. Calls count that are made from the main graph on.

    Args:
        model: Its values outside of functions are described as far as known.
    """
    if not model.functions:
        return
    calls: dict[ir.OperatorIdentifier, list[ir.Node]] = {}
    bodies = [model.graph]
    for body in bodies:  # to which functions are added as they are found
        for node in body.all_nodes():
            if (called := model.functions.get(node.op_identifier())) is None:
                continue
            if node.op_identifier() not in calls:
                bodies.append(called.graph)
            calls.setdefault(node.op_identifier(), []).append(node)
    described = 1
    while described:  # what a function is told, it can pass on to those that it calls
        described = sum(
            _describe(inside, _passed(callers, place))
            for identifier, callers in calls.items()
            for place, inside in enumerate(model.functions[identifier].inputs)
        )


def _passed(callers: Sequence[ir.Node], place: int) -> list[ir.Value]:
    """Return what calls pass for an input; empty if one of them leaves it out."""
    passed = [call.inputs[place] if place < len(call.inputs) else None for call in callers]
    present = [value for value in passed if value is not None]
    return present if len(present) == len(passed) else []


def _describe(inside: ir.Value, passed: Sequence[ir.Value]) -> bool:
    """Describe an input as what is passed for it, where that is the same in all calls; return whether that is news."""
    if not passed:
        return False
    first, news = passed[0], False
    if inside.type is None and first.type is not None and all(each.type == first.type for each in passed):
        inside.type, news = copy.copy(first.type), True
    if inside.shape is None and first.shape is not None and all(each.shape == first.shape for each in passed):
        inside.shape, news = first.shape.copy(), True
    return news
