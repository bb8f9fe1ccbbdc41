"""Signatures of nodes: operator, attributes, shapes and constants, without names and wiring.

Nodes with equal signatures do the same work.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import onnx_ir

from collage_core.ir.graph.metadata_keys import COMPOSITE_METADATA, PRIMITIVE_METADATA
from collage_core.ir.graph.walk import bodies
from collage_core.ir.values.content import constant_of, tensor_content_hash
from collage_core.ir.values.tensor_spec import TensorSpec

SMALL_CONSTANT_ELEMENTS = 64
"""Maximum size of float constants that enter a signature by value (scales, epsilons, axes).

Larger float constants are weights.
"""

_BY_VALUE = frozenset(
    dtype
    for dtype in onnx_ir.DataType
    if dtype.name.startswith(("INT", "UINT")) or dtype in (onnx_ir.DataType.BOOL, onnx_ir.DataType.STRING)
)


def node_signature(
    node: onnx_ir.Node,
    operands: Sequence[onnx_ir.Value | None],
    model: onnx_ir.Model,
    spec: Callable[[onnx_ir.Value], TensorSpec],
) -> str:
    """Compute the hash of everything about one node except its wiring.

    Integer, boolean and small constants enter by value, because they determine shapes and algorithms; larger float
    weights by shape and dtype only. Bodies enter whole.

    Args:
        node: The node.
        operands: The node's inputs, then the values its bodies capture.
        model: Provides opset versions and model-local functions.
        spec: Returns the spec of a value.
    """
    parts = [_operator(node, model), str(len(node.inputs))]
    parts.extend(_operand(value, spec) for value in operands)
    parts.append("->")
    parts.extend(_spec_text(spec(value)) if value.name else "-" for value in node.outputs)
    numbers = {value: f"o{position}" for position, value in enumerate(operands) if value is not None}
    parts.append(_attributes(node, numbers, model))
    return _digest(parts)


def _operand(value: onnx_ir.Value | None, spec: Callable[[onnx_ir.Value], TensorSpec]) -> str:
    if value is None:
        return "-"
    tensor = constant_of(value)
    if tensor is None:
        return _spec_text(spec(value))
    if tensor.dtype in _BY_VALUE or tensor.size <= SMALL_CONSTANT_ELEMENTS:
        return f"value {tensor_content_hash(tensor)}"
    return f"weight {_spec_text(spec(value))}"


def _spec_text(spec: TensorSpec) -> str:
    dtype = spec.type_name or "?" if spec.dtype is None else spec.dtype.name
    return f"{spec.kind.value} {dtype}{spec.shape}{spec.bound or ''}{spec.typical or ''}"


def _operator(node: onnx_ir.Node, model: onnx_ir.Model) -> str:
    function = model.functions.get(node.op_identifier())
    if function is not None:
        # A call is its body, and its label if it is a labelled part: the function's own name says nothing.
        numbers = {value: f"o{position}" for position, value in enumerate(function.inputs)}
        label = "" if PRIMITIVE_METADATA in function.metadata_props else function.metadata_props.get(COMPOSITE_METADATA)
        return f"function {label or ''}{_graph(function.graph, numbers, model)}"
    version = node.version or model.opset_imports.get(node.domain, 0)
    return f"{node.domain}::{node.op_type}:{node.overload}@{version}"


def _attributes(node: onnx_ir.Node, numbers: dict[onnx_ir.Value, str], model: onnx_ir.Model) -> str:
    return ";".join(
        f"{name}={_attribute(attribute, numbers, model)}" for name, attribute in sorted(node.attributes.items())
    )


def _attribute(attribute: onnx_ir.Attr, numbers: dict[onnx_ir.Value, str], model: onnx_ir.Model) -> str:
    kinds = onnx_ir.AttributeType
    if attribute.is_ref():
        return f"ref {attribute.ref_attr_name}"
    if attribute.type == kinds.GRAPH:
        return _graph(attribute.as_graph(), numbers, model)
    if attribute.type == kinds.GRAPHS:
        return ",".join(_graph(body, numbers, model) for body in attribute.as_graphs())
    if attribute.type == kinds.TENSOR:
        return tensor_content_hash(attribute.as_tensor())
    if attribute.type == kinds.TENSORS:
        return ",".join(map(tensor_content_hash, attribute.as_tensors()))
    return f"{attribute.type.name} {attribute.value!r}"


def _graph(graph: onnx_ir.Graph, outer: dict[onnx_ir.Value, str], model: onnx_ir.Model) -> str:
    """Compute the hash of a body, independent of names and node order.

    Nodes are numbered depth first from the body's outputs.
    """
    numbers = dict(outer)
    for position, value in enumerate(graph.inputs):
        numbers[value] = f"i{position}:{value.type}{value.shape}"
    lines: list[str] = []

    def number(value: onnx_ir.Value | None) -> str:
        if value is None:
            return "-"
        if value not in numbers:
            tensor = constant_of(value)
            numbers[value] = f"value {tensor_content_hash(tensor)}" if tensor is not None else "?"
        return numbers[value]

    def emit(node: onnx_ir.Node) -> None:
        inputs = " ".join(number(value) for value in node.inputs)
        # numbers is passed on, so that bodies of bodies see values of every enclosing graph
        lines.append(f"{_operator(node, model)}({inputs}){{{_attributes(node, numbers, model)}}}")
        for position, value in enumerate(node.outputs):
            numbers[value] = f"n{len(lines) - 1}.{position}"

    for node in _depth_first(graph):
        emit(node)
    lines.append("out " + " ".join(number(value) for value in graph.outputs))
    return _digest(lines)


def _depth_first(graph: onnx_ir.Graph) -> list[onnx_ir.Node]:
    members = set(graph)
    order: dict[onnx_ir.Node, None] = {}
    for value in graph.outputs:
        producer = value.producer()
        stack = [] if producer is None or producer not in members else [producer]
        while stack:
            node = stack[-1]
            pending = [
                producer
                for operand in reversed(_reads(node))
                if (producer := operand.producer()) is not None and producer in members and producer not in order
            ]
            if pending and node not in order:
                stack.extend(pending)
            else:
                order.setdefault(node)
                stack.pop()
    return list(order)


def _reads(node: onnx_ir.Node) -> list[onnx_ir.Value]:
    """Return the values a node reads, reads in its bodies included; values of the bodies themselves may be included."""
    values = [value for value in node.inputs if value is not None]
    for body in bodies(node):
        for inner in body:
            values.extend(_reads(inner))
        values.extend(body.outputs)
    return values


def _digest(parts: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]
