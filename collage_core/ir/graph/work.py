"""Estimate the work of a node from shapes, to place cuts before anything is measured."""

from __future__ import annotations

import math

import onnx_ir

from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.values.content import constant_of
from collage_core.ir.values.tensor_spec import TensorSpec, ValueKind

FLOPS_PER_US = 100e3
BYTES_PER_US = 10e3
"""Rates of a 100 GFLOP/s, 10 GB/s machine (two server cores).

Only ratios of estimates matter, and only until the first costs are measured.
"""

_SLOW = """
Acos Asin Atan Cos Elu Erf Exp Gelu HardSwish Log Mish Pow Selu Sigmoid Sin Softmax Softplus Swish Tan Tanh
"""
_TRANSCENDENTAL = frozenset(_SLOW.split())


def estimated_work_us(graph: DataflowGraph) -> tuple[float, ...]:
    """Estimate the microseconds of each node: the larger of arithmetic and memory traffic; 0 for host nodes."""
    return tuple(0.0 if graph.is_host(index) else _node_us(graph, index) for index in range(len(graph)))


def work_kinds(graph: DataflowGraph) -> tuple[str, ...]:
    """Return the cost class of each node, within which time is proportional to work.

    The class is the operator and, for a convolution, its window. Libraries have different code for 1x1, for larger
    windows and for grouped convolutions; the weights of a MatMul by a constant can be packed beforehand.
    """
    return tuple(_kind(graph, node) for node in graph.nodes)


def _kind(graph: DataflowGraph, node: onnx_ir.Node) -> str:
    weight = node.inputs[1] if len(node.inputs) > 1 else None
    shape = graph.spec(weight).shape if weight is not None else None
    if "Conv" in node.op_type and shape and len(shape) > 2:
        window = "x".join(str(extent) for extent in shape[2:])
        grouped = node.attributes.get_int("group", 1) != 1
        return f"{node.op_type} {window}" + (" grouped" if grouped else "")
    if node.op_type == "MatMul" and constant_of(weight) is not None:
        return "MatMul by a constant"
    return node.op_type


def _node_us(graph: DataflowGraph, index: int) -> float:
    node = graph.nodes[index]
    inputs = [graph.spec(value) for value in graph.operands[index] if value is not None]
    outputs = [graph.spec(value) for value in node.outputs if value.name]
    moved = sum(spec.nbytes for spec in (*inputs, *outputs) if spec.kind is not ValueKind.FOREIGN)
    if node.op_type in ("Gather", "Slice", "GatherND", "GatherElements"):  # reads only what it writes
        moved = 2 * sum(spec.nbytes for spec in outputs if spec.kind is not ValueKind.FOREIGN)
    return max(_flops(graph, node, outputs) / FLOPS_PER_US, moved / BYTES_PER_US, 0.1)


def _flops(graph: DataflowGraph, node: onnx_ir.Node, outputs: list[TensorSpec]) -> float:
    produced = sum(_elements(spec) for spec in outputs)
    specs = [None if value is None else graph.spec(value) for value in node.inputs]
    shapes = [None if spec is None else spec.typical or spec.shape for spec in specs]
    weight = shapes[1] if len(shapes) > 1 else None
    data = shapes[0] if shapes else None
    match node.op_type:
        case "Conv" | "QLinearConv" | "ConvInteger" | "DeformConv" if weight:
            return 2.0 * produced * _product(weight[1:])
        case "ConvTranspose" if weight and data:
            return 2.0 * _product(data) * _product(weight[1:])
        case "MatMul" | "MatMulInteger" | "Gemm" if data:
            transposed = node.attributes.get("transA")  # of Gemm; MatMul has no attributes
            return 2.0 * produced * (data[0 if transposed is not None and transposed.as_int() else -1] or 1)
        case "LSTM" | "GRU" | "RNN" if data:
            weights = [value for value in node.inputs[1:3] if constant_of(value) is not None]
            return 2.0 * _product(data[:2]) * sum(_elements(graph.spec(v)) for v in weights if v is not None)
        case "AveragePool" | "MaxPool" | "LpPool":
            return float(produced * math.prod(node.attributes.get_ints("kernel_shape", (1,))))
        case _:
            read = sum(_product(shape) for shape in shapes if shape)
            return (10.0 if node.op_type in _TRANSCENDENTAL else 1.0) * max(produced, read)


def _elements(spec: TensorSpec) -> int:
    return 0 if spec.kind is ValueKind.FOREIGN else math.prod(spec.static_shape)


def _product(shape: tuple[int | None, ...]) -> int:
    return math.prod(extent or 1 for extent in shape)
