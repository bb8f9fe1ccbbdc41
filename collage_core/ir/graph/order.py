"""Check whether the nodes of a graph are in an executable order, and explain why not."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir

from collage_core.ir.graph.walk import bodies, captured_values


def is_ordered(graph: onnx_ir.Graph) -> bool:
    """Return whether the nodes of a graph, and of its bodies, are in topological order."""
    nodes, passed = set(graph), set[onnx_ir.Node]()
    for node in graph:
        if not passed.issuperset(_read_from(node, nodes)) or not all(map(is_ordered, bodies(node))):
            return False
        passed.add(node)
    return True


def circle(graph: onnx_ir.Graph) -> tuple[onnx_ir.Node, ...]:
    """Find a cycle in a graph or one of its bodies.

    Each node of the cycle reads from the one before, and the first from the last. Empty if the graph has no cycle, so
    that its nodes can be ordered.
    """
    nodes, done = set(graph), set[onnx_ir.Node]()
    for root in graph:
        path = {root: _read_from(root, nodes)}  # from a node to what it reads, so against the flow
        while path and root not in done:
            node = next(reversed(path))
            following = next(path[node], None)
            if following is None:
                done.add(node)
                del path[node]
            elif following in path:
                way = list(path)
                return tuple(reversed(way[way.index(following) :]))
            elif following not in done:
                path[following] = _read_from(following, nodes)
    for node in graph:
        for body in bodies(node):
            if found := circle(body):
                return found
    return ()


def described(nodes: tuple[onnx_ir.Node, ...], most: int = 6) -> str:
    """Describe a cycle in words.

    Args:
        nodes: Result of `circle`.
        most: Maximum number of nodes to name.
    """
    shown = [f"{node.name!r} ({node.op_type})" for node in nodes[:most]]
    rest = [f"{len(nodes) - most} more"] if len(nodes) > most else []
    return " -> ".join([*shown, *rest, shown[0]])


def _read_from(node: onnx_ir.Node, nodes: set[onnx_ir.Node]) -> Iterator[onnx_ir.Node]:
    for value in (*node.inputs, *captured_values(node)):
        producer = None if value is None else value.producer()
        if producer is not None and producer in nodes:
            yield producer
