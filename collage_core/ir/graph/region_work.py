"""The work of nodes that run as one kernel: its arithmetic by element type, and the bytes across its border."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

import onnx_ir

from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.flops import node_flops
from collage_core.ir.graph.masks import iterate_bits
from collage_core.ir.graph.walk import bodies
from collage_core.ir.operators.quantised import is_dequantize

_PRODUCTS = frozenset({"Attention", "Conv", "ConvTranspose", "Einsum", "GRU", "Gemm", "LSTM", "MatMul", "RNN"})
_INTEGER_PRODUCTS = frozenset({"ConvInteger", "MatMulInteger", "QLinearConv", "QLinearMatMul"})
_REALS = frozenset(
    {onnx_ir.DataType.FLOAT16, onnx_ir.DataType.BFLOAT16, onnx_ir.DataType.FLOAT, onnx_ir.DataType.DOUBLE}
)
_PICKING = frozenset({"Gather", "GatherElements", "GatherND", "Slice"})
"""Operators that read no more of their first input than they write."""

_FLOAT_BYTES = 4
"""Bytes of a float32, of which a quantised weight takes one."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RegionWork:
    """Work of a region.

    Attributes:
        flops: Arithmetic operations by the element type they are computed in. INT8 stands for products of 8-bit
            integers, quantised ones included; FLOAT also for the arithmetic of other integers.
        nbytes: Bytes of its inputs, weights and outputs, each value once. Values whose size depends on data count as
            none, and so does what stays inside.
        uncounted: Operator type of each node whose arithmetic is not counted, in the graph's order.
    """

    flops: Mapping[onnx_ir.DataType, float]
    nbytes: int
    uncounted: tuple[str, ...] = ()


def region_work(
    graph: DataflowGraph,
    nodes: int,
    *,
    rounded_to: onnx_ir.DataType | None = None,
    int8: int = 0,
    int8_weights: int = 0,
) -> RegionWork:
    """Count the work of a region.

    Args:
        graph: The graph.
        nodes: Mask of the region's nodes.
        rounded_to: Type that the float32 operands of products are rounded to, as by a target of lower precision; None
            if they are not.
        int8: Mask of products whose operands are quantised, so that their weights are bytes.
        int8_weights: Mask of products of which only the weights are bytes.
    """
    flops: dict[onnx_ir.DataType, float] = {}
    uncounted = []
    for index in iterate_bits(nodes):
        count = node_flops(graph, index)
        if count is None:
            uncounted.append(graph.nodes[index].op_type)
        elif count:
            dtype = onnx_ir.DataType.INT8 if int8 >> index & 1 else _arithmetic(graph, index)
            if rounded_to is not None and dtype is onnx_ir.DataType.FLOAT and graph.nodes[index].op_type in _PRODUCTS:
                dtype = rounded_to
            flops[dtype] = flops.get(dtype, 0.0) + count
    nbytes = _read(graph, nodes, int8 | int8_weights) + _written(graph, nodes)
    return RegionWork(flops=flops, nbytes=nbytes, uncounted=tuple(uncounted))


def _arithmetic(graph: DataflowGraph, index: int) -> onnx_ir.DataType:
    """Return the element type that a node computes in."""
    node = graph.nodes[index]
    if node.op_type in _INTEGER_PRODUCTS:
        return onnx_ir.DataType.INT8
    if node.op_type in _PRODUCTS and all(_is_low_bit(graph, value) for value in node.inputs[:2]):
        return onnx_ir.DataType.INT8
    dtypes = (graph.spec(value).dtype for value in (*node.inputs, *node.outputs) if value is not None)
    return next((dtype for dtype in dtypes if dtype in _REALS), onnx_ir.DataType.FLOAT)


def _is_low_bit(graph: DataflowGraph, value: onnx_ir.Value | None) -> bool:
    """Return whether a value is dequantised from 8-bit integers, which libraries then multiply as such."""
    index = None if value is None else graph.producer(value)
    if index is None or not is_dequantize(graph.nodes[index]):
        return False
    stored = graph.nodes[index].inputs[0]
    return stored is not None and graph.spec(stored).dtype in {onnx_ir.DataType.INT8, onnx_ir.DataType.UINT8}


def _read(graph: DataflowGraph, nodes: int, int8: int) -> int:
    """Return the bytes a region has to read: of each value the most that any of its nodes needs."""
    needed: dict[onnx_ir.Value, int] = {}
    for index in iterate_bits(nodes):
        node = graph.nodes[index]
        if any(True for _ in bodies(node)):
            continue  # a branch that is not taken and a loop without a turn read nothing
        for position, value in enumerate(node.inputs):
            if value is None or node.op_type in ("Shape", "Size") or _is_inside(graph, value, nodes):
                continue
            size = _nbytes(graph, [value])
            if position == 0 and node.op_type in _PICKING:
                size = min(size, _nbytes(graph, node.outputs))
            if position == 1 and int8 >> index & 1:
                size //= _FLOAT_BYTES
            needed[value] = max(size, needed.get(value, 0))
    return sum(needed.values())


def _written(graph: DataflowGraph, nodes: int) -> int:
    outputs = (value for index in iterate_bits(nodes) for value in graph.nodes[index].outputs)
    return _nbytes(graph, (value for value in outputs if graph.is_exported(value, nodes)))


def _is_inside(graph: DataflowGraph, value: onnx_ir.Value, nodes: int) -> bool:
    producer = graph.producer(value)
    return producer is not None and bool(nodes >> producer & 1)


def _nbytes(graph: DataflowGraph, values: Iterable[onnx_ir.Value]) -> int:
    specs = (graph.spec(value) for value in values if value.name)
    return sum(spec.nbytes for spec in specs if spec.has_known_shape)
