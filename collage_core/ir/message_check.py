"""What a protobuf message must not hold for a model to be made of it: what the IR cannot express or fails on later."""

from __future__ import annotations

import math
from collections.abc import Iterable

import onnx
import onnx_ir

_GRAPHS = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)


def objection(proto: onnx.ModelProto) -> str:
    """Why a message is no model; empty if it may be one."""
    found = _in_graph(proto.graph, in_function=False)
    for function in proto.functions:
        found = found or _in_nodes(function.node, in_function=True)
    return found


def _in_graph(graph: onnx.GraphProto, *, in_function: bool) -> str:
    for tensor in graph.initializer:
        if tensor.data_type == onnx.TensorProto.UNDEFINED:
            return f"its weight {tensor.name!r} has no element type"
        if not _is_filled(tensor):
            return f"its weight {tensor.name!r} holds fewer elements than its shape {list(tensor.dims)} has"
    return _in_nodes(graph.node, in_function=in_function)


def _in_nodes(nodes: Iterable[onnx.NodeProto], *, in_function: bool) -> str:
    for node in nodes:
        for attribute in node.attribute:
            where = f"attribute {attribute.name!r} of node {node.name!r} ({node.op_type})"
            if attribute.ref_attr_name and not in_function:
                return f"{where} refers to attribute {attribute.ref_attr_name!r} of a function, but is in none"
            if attribute.ref_attr_name and attribute.type in _GRAPHS:
                return f"{where} is a body that whoever calls the function gives; inline the function first"
            if attribute.ref_attr_name:
                continue
            if attribute.type == onnx.AttributeProto.TENSOR and attribute.t.data_type == onnx.TensorProto.UNDEFINED:
                return f"{where} is a tensor without an element type"
            if any(tensor.data_type == onnx.TensorProto.UNDEFINED for tensor in attribute.tensors):
                return f"{where} holds a tensor without an element type"
            for body in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                if reason := _in_graph(body, in_function=in_function):
                    return reason
    return ""


def _is_filled(tensor: onnx.TensorProto) -> bool:
    """Whether a tensor inside a message holds as much as its shape says; an attempt to read it would fail later."""
    if tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.data_type == onnx.TensorProto.STRING:
        return True
    try:
        bits = onnx_ir.DataType(tensor.data_type).bitwidth
    except ValueError:  # no such type, which whoever makes a model of it says
        return True
    nbytes = math.ceil(math.prod(tensor.dims) * bits / 8)
    if tensor.HasField("raw_data"):
        return bool(len(tensor.raw_data) >= nbytes)
    fields = (tensor.float_data, tensor.int32_data, tensor.int64_data, tensor.double_data, tensor.uint64_data)
    return bool(max(map(len, fields)) * 8 >= nbytes)
