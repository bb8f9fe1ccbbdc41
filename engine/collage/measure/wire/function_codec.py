"""Encode and decode kernel functions for the wire, without moving weights.

The model travels as a blob in which large initializers are external data whose location is the blob of the
weight. The store's directory is also the model's directory, so opening the model maps its weights.
"""

from __future__ import annotations

import onnx_ir

from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.values import bytes_of
from collage.measure.wire.wire_values import WireFunction
from collage_core.contract import KernelFunction
from collage_core.ir.io.model_io import load_model

INLINE_BYTES = 1024
"""Size up to which initializers stay in the model: shapes and axes must be readable without another file."""

_BITS_PER_BYTE = 8


class FunctionEncoder:
    """Encodes kernel functions; each weight is hashed and written once in a process for a store.

    Args:
        store: Receives models and weights.
    """

    def __init__(self, store: BlobStore) -> None:
        self._store = store

    def encode(self, function: KernelFunction) -> WireFunction:
        """Encode `function` without changing it and write its weights to the store."""
        model = function.model.clone()
        weights: dict[str, None] = {}
        for graph in (model.graph, *model.graph.subgraphs()):
            for name, value in graph.initializers.items():
                tensor = value.const_value
                if tensor is None or tensor.nbytes <= INLINE_BYTES or tensor.dtype == onnx_ir.DataType.STRING:
                    continue
                known = function.constants.get(name) if graph is model.graph else None
                blob = self._weight(tensor, known)
                weights[blob] = None
                value.const_value = onnx_ir.ExternalTensor(
                    blob, 0, tensor.nbytes, tensor.dtype, shape=_shape(tensor), name=name
                )
        proto = onnx_ir.to_proto(model)
        return WireFunction(
            name=function.name,
            model=self._store.put(proto.SerializeToString()),
            weights=tuple(weights),
            inputs=function.inputs,
            outputs=function.outputs,
            composite=function.composite,
            constants=dict(function.constants),
        )

    def _weight(self, tensor: onnx_ir.TensorProtocol, content_hash: str | None) -> str:
        if content_hash is not None and (known := self._store.of_content.get(content_hash)) is not None:
            return known
        packed = tensor.dtype.bitwidth < _BITS_PER_BYTE  # NumPy has a byte per element of these, ONNX does not
        blob = self._store.put(tensor.tobytes() if packed else bytes_of(tensor.numpy()))
        if content_hash is not None:
            self._store.of_content[content_hash] = blob
        return blob


def decode_function(function: WireFunction, store: BlobStore) -> KernelFunction:
    """Decode a kernel function; its weights are read from the store on access.

    Raises:
        ModelFileError: If the blob is not a model.
        WireError: If the model or a weight of it is missing, or was altered.
    """
    for blob in (function.model, *function.weights):
        store.map(blob)
    return KernelFunction(
        name=function.name,
        model=load_model(store.path(function.model)),
        inputs=function.inputs,
        outputs=function.outputs,
        composite=function.composite,
        constants=function.constants,
    )


def _shape(tensor: onnx_ir.TensorProtocol) -> onnx_ir.Shape:
    return onnx_ir.Shape(tensor.shape.numpy())
