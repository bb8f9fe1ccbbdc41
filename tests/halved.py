"""A model of float32 as one of float16: what a user who casts a model gives."""

from __future__ import annotations

import numpy as np
import onnx_ir

_FLOAT, _HALF = onnx_ir.DataType.FLOAT, onnx_ir.DataType.FLOAT16


def halved(model: onnx_ir.Model) -> onnx_ir.Model:
    """The model with every float32 in it changed, in place: values, weights, what a Cast makes."""
    graph = model.graph
    for value in (*graph.inputs, *graph.initializers.values(), *(each for node in graph for each in node.outputs)):
        if value.dtype == _FLOAT:
            value.dtype = _HALF
        if value.const_value is not None and value.const_value.dtype == _FLOAT:
            with np.errstate(over="ignore"):  # the least float32 of a mask becomes minus infinity
                array = value.const_value.numpy().astype(np.float16)
            value.const_value = onnx_ir.tensor(array, name=value.name)
    for node in graph:
        to = node.attributes.get("to")
        if node.op_type == "Cast" and to is not None and to.value == _FLOAT:
            node.attributes["to"] = onnx_ir.Attr("to", onnx_ir.AttributeType.INT, int(_HALF))
    return model
