"""Give each reader of signed 8-bit weights a copy of its own, for processors that need them unsigned.

Where sums of 8-bit products saturate, ONNX Runtime turns signed weights and zero points into unsigned ones
(`session.x64quantprecision`), node by node, and names each result after what it was. So a session fails where two nodes
read the same weight or zero point: "Attempt to replace the existing tensor" (seen with 1.32.0).
"""

from __future__ import annotations

import itertools

import onnx_ir

from collage_onnxruntime.weights import add_initializer


def with_own_integers(model: onnx_ir.Model) -> onnx_ir.Model:
    """Return the model with signed 8-bit initializers that one node reads each, or the model itself if it is so.

    What dequantises a weight is read by one node, too: ONNX Runtime fuses it into each of its readers.

    Args:
        model: The model; it is not modified.
    """
    if not any(map(_is_shared, _integers(model.graph))):
        return model
    copy = model.clone()
    taken = {value.name for node in copy.graph for value in node.outputs} | set(copy.graph.initializers)
    for value in _integers(copy.graph):
        for reader, _ in value.uses():
            for user, at in _reads(reader)[1:]:
                user.replace_input_with(at, _another(reader, taken).outputs[0])
    for value in _integers(copy.graph):
        assert value.const_value is not None
        for user, at in tuple(value.uses())[1:]:
            user.replace_input_with(at, add_initializer(copy.graph, _name(value, taken), value.const_value.numpy()))
    return copy


def _integers(graph: onnx_ir.Graph) -> list[onnx_ir.Value]:
    return [value for value in graph.initializers.values() if value.dtype == onnx_ir.DataType.INT8]


def _is_shared(value: onnx_ir.Value) -> bool:
    return len(value.uses()) > 1 or any(len(_reads(reader)) > 1 for reader, _ in value.uses())


def _reads(reader: onnx_ir.Node) -> tuple[tuple[onnx_ir.Node, int], ...]:
    """Return who reads the weight that a node dequantises, with the places of the inputs; nobody if it is none."""
    weight = reader.inputs[0] if reader.inputs else None
    if reader.op_type != "DequantizeLinear" or reader.domain or weight is None or weight.const_value is None:
        return ()
    return tuple((use.node, use.idx) for use in reader.outputs[0].uses())


def _another(node: onnx_ir.Node, taken: set[str | None]) -> onnx_ir.Node:
    """Return a copy of a DequantizeLinear in its graph."""
    output = node.outputs[0]
    own = onnx_ir.Value(name=_name(output, taken), type=output.type, shape=output.shape)
    made = onnx_ir.Node("", node.op_type, node.inputs, node.attributes.values(), outputs=[own], name=own.name)
    assert node.graph is not None
    node.graph.insert_after(node, made)
    return made


def _name(value: onnx_ir.Value, taken: set[str | None]) -> str:
    """Return a new name, which begins with that of a value: by that `profile` knows it."""
    name = next(name for number in itertools.count(2) if (name := f"{value.name}_{number}") not in taken)
    taken.add(name)
    return name
