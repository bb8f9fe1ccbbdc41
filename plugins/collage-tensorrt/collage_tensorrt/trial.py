"""Smallest possible build, to check whether anything can be built."""

from __future__ import annotations

import onnx_ir


class NoBlobs:
    """A blob cache that stores nothing, since the results of a trial are not reused."""

    def get(self, key: str) -> bytes | None:
        """See `BlobCache.get`."""
        return None

    def put(self, key: str, data: bytes) -> None:
        """See `BlobCache.put`."""


def smallest_model() -> onnx_ir.Model:
    """Return a model of one Relu on one element."""
    x = onnx_ir.val("x", dtype=onnx_ir.DataType.FLOAT, shape=[1])
    node = onnx_ir.node("Relu", [x], name="relu")
    [y] = node.outputs
    y.name, y.dtype, y.shape = "y", onnx_ir.DataType.FLOAT, onnx_ir.Shape([1])
    graph = onnx_ir.Graph([x], [y], nodes=[node], opset_imports={"": 20}, name="trial")
    return onnx_ir.Model(graph, ir_version=10)
