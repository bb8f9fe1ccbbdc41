"""What ONNX Runtime is offered: every operator of the domains its CPU provider implements."""

from __future__ import annotations

from collage_core.contract import Supported, Unsupported
from collage_core.patterns import NodeContext

DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml", "com.microsoft"})
"""Domains the CPU execution provider has kernels for (docs/OperatorKernels.md in microsoft/onnxruntime)."""


def takes(node: NodeContext) -> Supported | Unsupported:
    """Whether a node may be proposed.

    Which operator, at which version, in which dtype, is not guessed here: `collage_query` asks the library itself.
    """
    if node.node.op_identifier() in node.graph.model.functions:
        return Supported()  # a function of the model: kernel functions come with its body in place of the call
    if node.domain in DOMAINS:
        return Supported()
    return Unsupported(f"ONNX Runtime's CPU provider has no operators of the domain {node.domain!r}")
