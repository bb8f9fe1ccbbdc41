"""Content of tensors: which values are constants, and hashes of their data."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import onnx_ir

_MEMO = "collage.content_hash"


def constant_of(value: onnx_ir.Value | None) -> onnx_ir.TensorProtocol | None:
    """Return the constant tensor of a value: an initializer that no caller can override; None otherwise."""
    if value is None or value.const_value is None or value.producer() is not None or value.is_graph_input():
        return None
    return value.const_value


def content_hash(array: np.ndarray[Any, Any]) -> str:
    """Compute the SHA-256 of a tensor's dtype, shape and bytes, in hexadecimal.

    Examples:
        >>> content_hash(np.zeros(2, np.float32)) == content_hash(np.zeros((2, 1), np.float32))
        False
    """
    digest = hashlib.sha256(f"{array.dtype.name}{tuple(array.shape)}".encode())
    if array.dtype == object:  # strings: each with its length, so that ("ab", "c") differs from ("a", "bc")
        for item in array.reshape(-1).tolist():
            data = item if isinstance(item, bytes) else str(item).encode()
            digest.update(len(data).to_bytes(8, "little") + data)
    elif array.size:
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def tensor_content_hash(tensor: onnx_ir.TensorProtocol) -> str:
    """Return the `content_hash` of a tensor, computed once per tensor object.

    Models extracted from one another share their tensors, so 100 MB of weights are read once, however many
    candidates hold them. The hash is cached in the tensor's `meta`, which is never serialized.
    """
    meta = getattr(tensor, "meta", None)
    if meta is None:
        return content_hash(np.asarray(tensor.numpy()))
    if _MEMO not in meta:
        meta[_MEMO] = content_hash(np.asarray(tensor.numpy()))
    return str(meta[_MEMO])
