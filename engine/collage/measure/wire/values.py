"""Encode and decode a model's values for the wire: tensors as blobs, strings and structure as JSON."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes  # noqa: F401  registers bfloat16 and float8 with NumPy
import numpy as np
import onnx_ir

from collage.errors import WireError
from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.wire_values import WireValue


def encode_value(value: Any, store: BlobStore) -> WireValue:
    """Write a value's bytes to the store and return its description.

    Args:
        value: An array, a number, a list or tuple of values, or None for an absent optional.
        store: Receives the bytes.

    Raises:
        WireError: If the value has another type.
    """
    if value is None:
        return WireValue(kind="absent")
    if isinstance(value, (list, tuple)):
        return WireValue(kind="sequence", items=tuple(encode_value(item, store) for item in value))
    array = np.asarray(value)
    if array.dtype.kind in "OUS":
        strings = tuple(item.decode() if isinstance(item, bytes) else str(item) for item in array.ravel().tolist())
        return WireValue(kind="strings", shape=array.shape, strings=strings)
    try:
        dtype = onnx_ir.DataType.from_numpy(array.dtype)
    except TypeError as error:
        raise WireError(f"a value of NumPy type {array.dtype} is no ONNX tensor") from error
    return WireValue(kind="tensor", dtype=dtype.name, shape=array.shape, blob=store.put(bytes_of(array)))


def decode_value(value: WireValue, store: BlobStore) -> Any:
    """Decode a value; a tensor is a read-only view of the mapped blob.

    Raises:
        WireError: If a blob is missing or does not have the size the tensor needs.
    """
    match value.kind:
        case "absent":
            return None
        case "sequence":
            return [decode_value(item, store) for item in value.items]
        case "strings":
            array = np.empty(len(value.strings), dtype=object)
            array[:] = value.strings
            return array.reshape(value.shape)
    try:
        dtype = np.dtype(onnx_ir.DataType[value.dtype].numpy())
    except (KeyError, TypeError) as error:
        raise WireError(f"{value.dtype!r} is not an element type") from error
    data = store.map(value.blob)
    if min(value.shape, default=0) < 0 or len(data) != math.prod(value.shape) * dtype.itemsize:
        raise WireError(f"blob {value.blob} has {len(data)} bytes, which is no {value.dtype} of shape {value.shape}")
    return np.frombuffer(data, dtype).reshape(value.shape)


def bytes_of(array: np.ndarray[Any, Any]) -> memoryview:
    """Return the bytes of an array, row-major; a view if the array is contiguous."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data if array.size else memoryview(b"")
