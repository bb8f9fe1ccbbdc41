"""Traverse a graph: bodies, captured values, topological order, names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx_ir

from collage_core.ir.operators.op_kind import is_pure
from collage_core.ir.operators.quantised import is_dequantize
from collage_core.ir.values.content import constant_of


def captured_values(node: onnx_ir.Node) -> tuple[onnx_ir.Value, ...]:
    """Return the values of enclosing graphs that only the bodies of an If, Loop or Scan read, by first use."""
    inside: set[onnx_ir.Value] = set()
    read: dict[onnx_ir.Value, None] = {}

    def visit(body: onnx_ir.Graph) -> None:
        inside.update(body.inputs)
        inside.update(body.initializers.values())
        for inner in body:
            read.update(dict.fromkeys(value for value in inner.inputs if value is not None and value not in inside))
            inside.update(inner.outputs)
            for sub_body in bodies(inner):
                visit(sub_body)
        read.update(dict.fromkeys(value for value in body.outputs if value not in inside))

    for body in bodies(node):
        visit(body)
    return tuple(value for value in read if value not in inside and value not in node.inputs)


def bodies(node: onnx_ir.Node) -> Iterator[onnx_ir.Graph]:
    """Yield the graphs in a node's attributes."""
    for attribute in node.attributes.values():
        if attribute.is_ref():
            continue
        if attribute.type == onnx_ir.AttributeType.GRAPH:
            yield attribute.as_graph()
        elif attribute.type == onnx_ir.AttributeType.GRAPHS:
            yield from attribute.as_graphs()


def depth_first(
    graph: onnx_ir.Graph, members: set[onnx_ir.Node], captured: dict[onnx_ir.Node, tuple[onnx_ir.Value, ...]]
) -> tuple[onnx_ir.Node, ...]:
    """Order the nodes that outputs depend on topologically, depth first from the outputs, inputs in order.

    A DequantizeLinear is placed right before its first reader, after that reader's other producers: the two belong
    together, and no cut would be possible between them.

    Args:
        graph: The graph.
        members: The graph's nodes.
        captured: Values only the bodies of a node read, by node.
    """
    order: dict[onnx_ir.Node, None] = {}

    def producers(node: onnx_ir.Node) -> Iterator[onnx_ir.Node]:
        late = []
        for producer in _producers((*node.inputs, *captured.get(node, ()))):
            if is_dequantize(producer):
                late.append(producer)
                yield from _producers(producer.inputs)
            else:
                yield producer
        yield from late

    for root in [value.producer() for value in graph.outputs]:
        if root is None or root in order or root not in members:
            continue
        stack = [(root, producers(root))]
        while stack:
            node, pending = stack[-1]
            following = next((each for each in pending if each in members and each not in order), None)
            if following is None:
                order.setdefault(node)
                stack.pop()
            else:
                stack.append((following, producers(following)))
    return tuple(order)


def _producers(values: Iterable[onnx_ir.Value | None]) -> Iterator[onnx_ir.Node]:
    for value in values:
        producer = value.producer() if value is not None else None
        if producer is not None:
            yield producer


def unique_names(nodes: tuple[onnx_ir.Node, ...]) -> tuple[str, ...]:
    """Return a unique name for each node; the first node with a name keeps it."""
    used: set[str] = set()
    names = []
    own = {node.name for node in nodes}
    for index, node in enumerate(nodes):
        name = node.name or f"{node.op_type}_{index}"
        suffix = 0
        while name in used or (suffix and name in own):
            suffix += 1
            name = f"{node.name or node.op_type}_{suffix}"
        used.add(name)
        names.append(name)
    return tuple(names)


def is_pure_node(node: onnx_ir.Node) -> bool:
    """Return whether a node is pure, its bodies included."""
    mode = node.inputs[2] if node.op_type == "Dropout" and len(node.inputs) > 2 else None
    tensor = constant_of(mode)
    training = mode is not None and (tensor is None or bool(tensor.numpy()))
    if not is_pure(node.op_type, node.domain, training=training):
        return False
    return all(is_pure_node(inner) for body in bodies(node) for inner in body)


def may_read_float32(node: onnx_ir.Node, operators: frozenset[str], model: onnx_ir.Model) -> bool:
    """Return whether one of these operators may read float32 in a node.

    The node is such an operator, has one in a body, or calls one.

    Args:
        node: The node.
        operators: Names of operators of the standard. An operator of another domain without a body is assumed to be
            one of them.
        model: The node's model, whose functions it may call.
    """
    if any(may_read_float32(inner, operators, model) for body in bodies(node) for inner in body):
        return True
    function = model.functions.get(node.op_identifier())
    if function is not None:
        return any(may_read_float32(inner, operators, model) for inner in function)
    if node.domain not in ("", "ai.onnx"):
        return True
    types = {value.dtype for value in node.inputs if value is not None}  # inside of functions they are None
    return node.op_type in operators and not types.isdisjoint({None, onnx_ir.DataType.FLOAT})
