"""A kernel function: one candidate extracted as a model, with its constants at hand."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir

from collage_core.ir.tensor_spec import TensorSpec


def content_hash(array: np.ndarray[Any, Any]) -> str:
    """SHA-256 of dtype, shape and bytes of a tensor, in hexadecimal.

    Examples:
        >>> content_hash(np.zeros(2, np.float32)) == content_hash(np.zeros((2, 1), np.float32))
        False
    """
    digest = hashlib.sha256(f"{array.dtype.name}{tuple(array.shape)}".encode())
    contiguous = np.ascontiguousarray(array)
    digest.update(contiguous.reshape(-1).view(np.uint8).data if array.size else b"")
    return digest.hexdigest()


@dataclasses.dataclass(frozen=True, kw_only=True)
class KernelFunction:
    """One ONNX model to be lowered into one kernel.

    Attributes:
        name: Global symbol, a valid C identifier.
        model: A model whose graph has the kernel's inputs and outputs, its constants as initializers, and
            whose nodes are the candidate's. Nested composites are calls to model-local functions with
            `collage.composite` metadata.
        inputs: The graph's inputs in order, row-major, in the model's dtypes.
        outputs: The graph's outputs in order.
        composite: Label of the composite the whole candidate is, or `""`.
        constants: Content hash (`content_hash`) of each initializer, by name.
    """

    name: str
    model: onnx_ir.Model
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    composite: str = ""
    constants: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def constant(self, name: str) -> np.ndarray[Any, Any]:
        """One initializer's value, read when asked for.

        Raises:
            KeyError: If the function has no such initializer.
        """
        value = self.model.graph.initializers[name].const_value
        if value is None:
            raise KeyError(name)
        return value.numpy()
