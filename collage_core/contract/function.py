"""Kernel functions: one candidate extracted as a model, with access to its constants."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx_ir

from collage_core.ir.graph.canonical import structural_hash
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.values.content import content_hash, tensor_content_hash
from collage_core.ir.values.tensor_spec import TensorSpec

__all__ = ["KernelFunction", "content_hash"]


class _ContentHashes(Mapping[str, str]):
    """Hashes of a graph's initializers, computed on demand and once per tensor."""

    def __init__(self, initializers: Mapping[str, onnx_ir.Value]) -> None:
        self._initializers = initializers

    def __getitem__(self, name: str) -> str:
        tensor = self._initializers[name].const_value
        if tensor is None:
            raise KeyError(name)
        return tensor_content_hash(tensor)

    def __iter__(self) -> Iterator[str]:
        return (name for name, value in self._initializers.items() if value.const_value is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class KernelFunction:
    """One ONNX model to be lowered into one kernel.

    Attributes:
        name: Global symbol, a valid C identifier.
        model: A model whose graph has the kernel's inputs and outputs, its constants as initializers, and
            whose nodes are the candidate's. Composites inside are calls to model-local functions with
            `collage.composite` metadata, and so are composites inside those.
        inputs: The graph's inputs in order, row-major, in the model's dtypes.
        outputs: The graph's outputs in order.
        composite: Composite label of the whole candidate, or `""`.
        constants: Content hash (`content_hash`) of each initializer that the model has, by name; others, such as
            quantised weights, are the function's own, and what becomes of them is part of an artifact. Unless given,
            it is all initializers; hashes are computed on demand, and each tensor is read once, however many functions
            share it.
    """

    name: str
    model: onnx_ir.Model
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    composite: str = ""
    constants: Mapping[str, str] = None  # type: ignore[assignment]  # filled in below

    def __post_init__(self) -> None:
        if self.constants is None:
            object.__setattr__(self, "constants", _ContentHashes(self.model.graph.initializers))

    @functools.cached_property
    def structural_hash(self) -> str:
        """Hash that ignores names and the values of larger float weights.

        One measurement is shared by all functions with an equal hash, so they must get the same variants under the same
        names. Keys of a `BlobCache` begin with this hash, unless the cached bytes contain weights.
        """
        graph = DataflowGraph(self.model)
        return structural_hash(graph, graph.all_mask)

    def constant(self, name: str) -> np.ndarray[Any, Any]:
        """Return the value of one initializer, read on demand.

        Raises:
            KeyError: If the function has no such initializer.
        """
        value = self.model.graph.initializers[name].const_value
        if value is None:
            raise KeyError(name)
        return value.numpy()
