"""Check protobuf messages for content that the IR cannot express or that fails later."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

import onnx
import onnx_ir

_GRAPHS = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)
_MOST_BYTES = 2**63


def objection(proto: onnx.ModelProto) -> str:
    """Return why a message is not a valid model; empty if it may be one."""
    found = _in_graph(proto.graph, in_function=False)
    for function in proto.functions:
        found = found or _repeated(dict.fromkeys(function.input, "an input"), function.node)
        found = found or _in_nodes(function.node, in_function=True)
    return found


def _in_graph(graph: onnx.GraphProto, *, in_function: bool) -> str:
    inputs, weights = [value.name for value in graph.input], [tensor.name for tensor in graph.initializer]
    for kind, names in (("inputs", inputs), ("weights", weights)):
        if twice := [name for name, times in Counter(names).items() if times > 1]:
            return f"two of its {kind} are named {twice[0]!r}"
    for tensor in graph.initializer:
        if reason := _in_tensor(tensor):
            return f"its weight {tensor.name!r} {reason}"
    given = {**dict.fromkeys(weights, "a weight"), **dict.fromkeys(inputs, "an input")}
    return _repeated(given, graph.node) or _in_nodes(graph.node, in_function=in_function)


def _repeated(given: dict[str, str], nodes: Iterable[onnx.NodeProto]) -> str:
    """Return a description of the first value that is defined twice; empty if there is none.

    Args:
        given: Definition of each value, by its name; extended in place.
        nodes: The nodes.
    """
    for node in nodes:
        who = f"node {node.name!r} ({node.op_type})"
        for name in filter(None, node.output):
            if name in given:
                return f"its value {name!r} is given twice, by {given[name]} and by {who}; each needs a name of its own"
            given[name] = who
    return ""


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
            tensors = [attribute.t] if attribute.type == onnx.AttributeProto.TENSOR else attribute.tensors
            for tensor in tensors:
                if reason := _in_tensor(tensor):
                    return f"the tensor in {where} {reason}"
            for body in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                if reason := _in_graph(body, in_function=in_function):
                    return reason
    return ""


def _in_tensor(tensor: onnx.TensorProto) -> str:
    """Return why reading a tensor would fail, phrased to follow its name; empty if it would not."""
    shape = list(tensor.dims)
    if tensor.data_type == onnx.TensorProto.UNDEFINED:
        return "has no element type"
    if any(extent < 0 for extent in shape):
        return f"has a negative extent in its shape {shape}"
    try:
        bits = onnx_ir.DataType(tensor.data_type).bitwidth
    except ValueError:
        return f"is of element type {tensor.data_type}, which nobody knows here; a newer onnx may"
    except TypeError:  # of strings, whose elements have no size
        bits = 0
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return _in_reference(tensor)
    held, needed = _held(tensor, math.prod(shape), bits)
    if held < needed:
        return f"holds fewer elements than its shape {shape} has"
    if held > needed and (tensor.HasField("raw_data") or bits >= 8 or not bits):
        return f"holds more elements than its shape {shape} has"
    return ""


def _held(tensor: onnx.TensorProto, elements: int, bits: int) -> tuple[int, int]:
    """Return the stored and the required size of an embedded tensor, in bytes or entries of its field."""
    if not bits:
        return len(tensor.string_data), elements
    nbytes = -(-elements * bits // 8)
    if tensor.HasField("raw_data"):
        return len(tensor.raw_data), nbytes
    fields = (tensor.float_data, tensor.int32_data, tensor.int64_data, tensor.double_data, tensor.uint64_data)
    is_complex = tensor.data_type in (onnx.TensorProto.COMPLEX64, onnx.TensorProto.COMPLEX128)
    # one entry each, but for complex numbers, which are two, and for types below a byte, which share entries
    return max(map(len, fields)), nbytes if bits < 8 else elements * (2 if is_complex else 1)


def _in_reference(tensor: onnx.TensorProto) -> str:
    """Return the problem with the location of an external tensor; empty if there is none."""
    said = {entry.key: entry.value for entry in tensor.external_data}
    if not said.get("location") or "\0" in said["location"]:
        return "is in external data, and the model does not say in which file"
    for key in ("offset", "length"):
        text = said.get(key, "0")
        if not (text.isascii() and text.isdigit()) or int(text) >= _MOST_BYTES:
            return f"is in external data, and its {key} there is {text!r}, which is no number of bytes"
    return ""
