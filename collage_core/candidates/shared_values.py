"""Values of a graph that occupy device memory, as input to the search."""

from __future__ import annotations

import onnx_ir

from collage_core.contract import ValueKind
from collage_core.contract.device import HOST
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.values.content import constant_of
from collage_core.search import SharedValue


def shared_values(graph: DataflowGraph) -> tuple[tuple[onnx_ir.Value, SharedValue], ...]:
    """Return the values of a graph that occupy memory on some device: graph inputs and kernel outputs.

    A view shares its source's memory. Constants are excluded; they are placed on the devices that read them when a
    plan is loaded.
    """
    roots: dict[onnx_ir.Value, onnx_ir.Value] = {}
    readers: dict[onnx_ir.Value, int] = {}
    found: list[tuple[onnx_ir.Value, int | None]] = [
        (value, None) for value in graph.model.graph.inputs if value.name not in graph.model.graph.initializers
    ]
    for index, node in enumerate(graph.nodes):
        for operand in graph.operands[index]:
            if operand is not None and constant_of(operand) is None:
                root = roots.get(operand, operand)
                readers[root] = readers.get(root, 0) | 1 << index
        if graph.is_host(index):
            source = node.inputs[0]
            assert source is not None  # or it were no view
            roots[node.outputs[0]] = roots.get(source, source)
        else:
            found += [(value, index) for value in node.outputs if value.name]
    wanted = {roots.get(value, value) for value in graph.model.graph.outputs}
    return tuple(
        (
            value,
            SharedValue(
                producer=producer,
                readers=readers.get(value, 0),
                size_bytes=_size(graph, value),
                starts_on=HOST if producer is None else "",
                ends_on=HOST if value in wanted else "",
            ),
        )
        for value, producer in found
    )


def _size(graph: DataflowGraph, value: onnx_ir.Value) -> int | None:
    spec = graph.spec(value)
    return spec.nbytes if spec.kind is ValueKind.PLANNED else None
