"""Operators that ONNX Runtime may run: all in the domains its CPU provider implements."""

from __future__ import annotations

from collage_core.contract import Supported, Unsupported
from collage_core.patterns import NodeContext

DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml", "com.microsoft"})
"""Domains the CPU execution provider has kernels for (docs/OperatorKernels.md in microsoft/onnxruntime)."""


def takes(node: NodeContext) -> Supported | Unsupported:
    """Return whether a node may be proposed.

    Supported operators, versions and dtypes are not guessed here: `collage_query` queries the library itself.
    """
    if node.node.op_identifier() in node.graph.model.functions:
        return Supported()  # a function of the model: kernel functions come with its body in place of the call
    if node.domain in DOMAINS:
        return Supported()
    return Unsupported(f"ONNX Runtime's CPU provider has no operators of the domain {node.domain!r}")
