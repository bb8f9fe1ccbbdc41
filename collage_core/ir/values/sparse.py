"""Convert sparse constants to dense ones in a message: the IR and most toolchains support only dense ones."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator

import numpy as np
import onnx
from onnx import numpy_helper


def make_dense(proto: onnx.ModelProto) -> str:
    """Replace sparse initializers, and sparse values of Constant nodes, by dense ones, in place.

    Returns:
        The reason why the model cannot be made dense; empty on success.
    """
    try:
        for graph in _graphs(proto):
            graph.initializer.extend(_dense(tensor) for tensor in graph.sparse_initializer)
            del graph.sparse_initializer[:]
            _in_nodes(graph.node)
        for function in proto.functions:
            _in_nodes(function.node)
    except _ImpossibleError as error:
        return str(error)
    return ""


class _ImpossibleError(Exception):
    """A sparse tensor with invalid content."""


def _in_nodes(nodes: Iterator[onnx.NodeProto]) -> None:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.SPARSE_TENSOR and attribute.name == "sparse_value":
                dense = _dense(attribute.sparse_tensor)
                attribute.Clear()
                attribute.name, attribute.type = "value", onnx.AttributeProto.TENSOR
                attribute.t.CopyFrom(dense)


def _dense(sparse: onnx.SparseTensorProto) -> onnx.TensorProto:
    name, shape = sparse.values.name, tuple(sparse.dims)
    where = f"its sparse constant {name!r} of shape {list(shape)}"
    if onnx.TensorProto.EXTERNAL in (sparse.values.data_location, sparse.indices.data_location):
        raise _ImpossibleError(f"{where} has its elements in another file; put them into the model")
    try:
        values, indices = numpy_helper.to_array(sparse.values), numpy_helper.to_array(sparse.indices)
    except Exception as error:
        raise _ImpossibleError(f"{where} cannot be read: {error}") from error
    if math.prod(shape) * values.itemsize > _memory_bytes():
        raise _ImpossibleError(f"{where} does not fit into this machine's memory as a dense one")
    if min(shape, default=0) < 0 or values.ndim != 1:
        raise _ImpossibleError(f"{where} is none")
    array = np.zeros(shape, values.dtype)
    try:  # an index per element, or one along each axis
        at = np.unravel_index(indices, shape) if indices.ndim == 1 else tuple(indices.T)
        if indices.ndim > 1 and (len(at) != len(shape) or (indices < 0).any()):
            raise IndexError(f"indices of shape {list(indices.shape)}")
        array[at] = values
    except (ValueError, IndexError) as error:
        raise _ImpossibleError(f"{where} has elements outside of it: {error}") from error
    return numpy_helper.from_array(array, name)


def _memory_bytes() -> int:
    """Return the machine's physical memory, or no limit where POSIX does not tell it."""
    if not hasattr(os, "sysconf"):
        return sys.maxsize
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _graphs(proto: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    waiting = [proto.graph]
    nodes = [node for function in proto.functions for node in function.node]
    while waiting or nodes:
        if waiting:
            graph = waiting.pop()
            yield graph
            nodes.extend(graph.node)
        for node in nodes:
            for attribute in node.attribute:
                waiting.extend([attribute.g] if attribute.HasField("g") else [])
                waiting.extend(attribute.graphs)
        nodes.clear()
