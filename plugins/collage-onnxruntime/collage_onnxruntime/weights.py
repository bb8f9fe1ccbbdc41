"""Separate weights from the model that uses them, so that none is copied through a protobuf message."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx_ir

from collage_core.errors import ModelFileError
from collage_core.ir.io.external_data import external_references

Array: TypeAlias = np.ndarray[Any, Any]

WEIGHTS = "weights.bin"
"""File of an artifact with the weights that the optimiser made, and what its model calls every large weight."""
UNREAD = Path(__file__).parent / "unread"
"""Folder with an empty file `WEIGHTS`: a session has to find what its model refers to, though weights are given to it.
"""

INLINE_BYTES = 1024
"""Tensors up to this size stay in the model: shapes, axes and scales are read while a session is created."""

ALIGNMENT = 64  # bytes: one cache line, one AVX-512 register

_TO_BE_SUPPLIED = "supplied-at-load"
_PACKED_BELOW_BITS = 8
_BEGINNING = 256
"""Bytes of two weights that are compared first."""


def detach(model: onnx_ir.Model) -> tuple[bytes, dict[str, Array]]:
    """Serialize a model without its large weights.

    Args:
        model: The model; it is not modified.

    Returns:
        The model, in which each large initializer refers to external data that does not exist, and those
        initializers by name, to be supplied to the session.
    """
    copy = model.clone()
    weights: dict[str, Array] = {}
    for name, value in copy.graph.initializers.items():
        tensor = value.const_value
        if tensor is None:
            continue
        if tensor.nbytes > INLINE_BYTES and can_be_supplied(tensor.dtype):
            weights[name] = np.asarray(tensor.numpy(), order="C")
            value.const_value = onnx_ir.ExternalTensor(
                _TO_BE_SUPPLIED, 0, tensor.nbytes, tensor.dtype, shape=onnx_ir.Shape(tensor.shape.numpy()), name=name
            )
        elif isinstance(tensor, onnx_ir.ExternalTensor):
            value.const_value = inside(tensor)
    for graph in copy.graph.subgraphs():  # only the main graph's initializers can be supplied
        for value in graph.initializers.values():
            if isinstance(value.const_value, onnx_ir.ExternalTensor):
                value.const_value = inside(value.const_value)
    return onnx_ir.to_proto(copy).SerializeToString(), weights


def reads_elsewhere(model: bytes, supplied: Collection[str]) -> str:
    """Say what a session would read from files, or from memory; empty if nothing.

    ONNX Runtime reads external data relative to the working directory when a model is given as bytes, and takes the
    offset in a file of a certain name for an address in memory. Only what is supplied is not read.

    Args:
        model: The serialized model, which may be anybody's.
        supplied: Names of the weights that are supplied to the session.
    """
    try:
        references = external_references(model)
    except ModelFileError as error:
        return f"its model cannot be read: {error}"
    named = Counter(each.name for each in references)
    for each in references:
        ours = each.of_main_graph and each.location == WEIGHTS and each.name in supplied and named[each.name] == 1
        if not ours:
            return f"its model takes {each.name!r} from the file {each.location!r}, which artifacts do not have"
    return ""


def can_be_supplied(dtype: onnx_ir.DataType) -> bool:
    """Return whether NumPy and ONNX Runtime store a tensor of this type in the same bytes."""
    return (
        dtype not in (onnx_ir.DataType.STRING, onnx_ir.DataType.COMPLEX64, onnx_ir.DataType.COMPLEX128)
        and dtype.bitwidth >= _PACKED_BELOW_BITS
    )


def session_values(weights: Mapping[str, Array]) -> tuple[list[str], list[Any]]:
    """Return names and `OrtValue`s over the arrays' own memory; the arrays must outlive the session."""
    import onnxruntime

    values = []
    for array in weights.values():
        dtype = onnx_ir.DataType.from_numpy(array.dtype)
        if array.dtype.isbuiltin == 1:
            values.append(onnxruntime.OrtValue.ortvalue_from_numpy(array))
        else:  # bfloat16, float8: a NumPy type of the same size, relabelled
            words = array.view(np.dtype(f"u{array.dtype.itemsize}"))
            values.append(onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(words, int(dtype)))
    return list(weights), values


class Known:
    """The function's constants, to recognise one in an optimised model under any name.

    Args:
        weights: Arrays by name, as passed to the session.
        hashes: Content hash by the same names.
    """

    def __init__(self, weights: Mapping[str, Array], hashes: Mapping[str, str]) -> None:
        self._by_type: dict[tuple[np.dtype[Any], tuple[int, ...]], list[str]] = {}
        self._weights = {name: array for name, array in weights.items() if name in hashes}
        self._hashes = hashes
        for name, array in self._weights.items():
            self._by_type.setdefault((array.dtype, array.shape), []).append(name)

    def content_hash(self, name: str, array: Array) -> str | None:
        """Return the hash of the constant with the same bytes, or None if the optimiser created the array."""
        alike = self._by_type.get((array.dtype, array.shape), [])
        for other in sorted(alike, key=lambda candidate: candidate != name):  # the namesake first
            if _same_bytes(self._weights[other], array):
                return self._hashes[other]
        return None


def add_initializer(graph: onnx_ir.Graph, name: str, array: Array) -> onnx_ir.Value:
    """Add an initializer of a new name to a graph."""
    tensor = onnx_ir.tensor(np.ascontiguousarray(array), name=name)
    value = onnx_ir.Value(
        name=name, type=onnx_ir.TensorType(tensor.dtype), shape=onnx_ir.Shape(array.shape), const_value=tensor
    )
    graph.register_initializer(value)
    return value


def pack(arrays: Iterable[Array]) -> tuple[bytes, list[int]]:
    """Return the bytes of all arrays, each aligned, and the offset of each."""
    parts: list[bytes] = []
    offsets: list[int] = []
    end = 0
    for array in arrays:
        gap = -end % ALIGNMENT
        parts += (b"\0" * gap, array.tobytes())
        offsets.append(end + gap)
        end += gap + array.nbytes
    return b"".join(parts), offsets


def aligned(data: bytes) -> Array:
    """Return a copy of `data` aligned to a cache line.

    `bytes` objects are not aligned, and blocked kernels read whole lines.
    """
    room = np.empty(len(data) + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    room[start : start + len(data)] = np.frombuffer(data, np.uint8)
    return room[start : start + len(data)]


def view(blob: Array, offset: int, dtype: onnx_ir.DataType, shape: tuple[int, ...]) -> Array:
    """Return one tensor inside a blob made by `pack`."""
    item = np.dtype(dtype.numpy())
    return blob[offset : offset + math.prod(shape) * item.itemsize].view(item).reshape(shape)


def _same_bytes(one: Array, other: Array) -> bool:
    one, other = (array.reshape(-1).view(np.uint8) for array in (one, other))
    # the beginning tells most weights apart: blocked ones are compared with all of their shape
    return np.array_equal(one[:_BEGINNING], other[:_BEGINNING]) and np.array_equal(one, other)


def inside(tensor: onnx_ir.ExternalTensor) -> onnx_ir.TensorProtocol:
    """Return the same tensor, independent of its file."""
    return onnx_ir.Tensor(tensor.numpy(), dtype=tensor.dtype, shape=tensor.shape, name=tensor.name)
