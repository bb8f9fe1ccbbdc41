"""What the rest of a model touches between two runs of one of its kernels."""

from __future__ import annotations

from typing import Final

from collage_core.ir.graph.dataflow import DataflowGraph

VALUES_BESIDE: Final = 1 << 22
"""Bytes of values that other kernels touch, at least: enough for the caches of two cores. Behind 4 MiB, the kernels of
three plans of the regret benchmark took 2 to 12 % more in sum than in the plan; behind 32 MiB 7 to 19 %, and those of
less than 0.15 ms about twice as long.
"""
CACHE_BYTES: Final = 1 << 25
"""Share of a processor's last-level cache that one model is taken to have."""


def bytes_beside(graph: DataflowGraph, nodes: int) -> int:
    """Return how much memory the rest of a model touches between two runs of a kernel; 0 if there is no rest.

    Each weight is read once per run. If those of the model exceed `CACHE_BYTES`, as much passes through the caches.
    Otherwise weights stay in the last-level cache, and values displace what is in those of the cores.

    Args:
        graph: The graph.
        nodes: Mask of the kernel's nodes.

    Examples:
        >>> import onnx_ir
        >>> graph = DataflowGraph(onnx_ir.from_onnx_text('''
        ... <ir_version: 10, opset_import: ["" : 21]>
        ... g (float[2] x) => (float[2] y) { a = Relu(x)  b = Exp(a)  y = Add(b, a) }'''))
        >>> bytes_beside(graph, 0b001), bytes_beside(graph, 0b111)
        (4194304, 0)
    """
    if not graph.needs_kernel & ~nodes:
        return 0
    return CACHE_BYTES if graph.weights_bytes > CACHE_BYTES else VALUES_BESIDE
