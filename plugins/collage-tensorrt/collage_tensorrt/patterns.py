"""Nodes that may be proposed to TensorRT: standard operators on supported types; its importer decides further."""

from __future__ import annotations

from collage_core.contract import Supported, Unsupported
from collage_core.patterns import NodeContext
from collage_tensorrt.dtypes import cannot_hold


def takes(node: NodeContext) -> Supported | Unsupported:
    """Return whether a node may be proposed at all."""
    if node.node.op_identifier() in node.graph.model.functions:
        return Supported()  # a function of the model: kernel functions come with its body in place of the call
    if node.domain:
        # The importer looks operators up by name alone, so it would take another domain's for ONNX's own.
        return Unsupported(f"its importer knows standard operators only, none of {node.domain!r}")
    for spec in (*node.inputs, *node.outputs):
        if spec is not None and spec.name and (reason := cannot_hold(spec)):
            return Unsupported(reason)
    return Supported()
