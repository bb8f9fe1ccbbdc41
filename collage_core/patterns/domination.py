"""Find the earlier values that a node dominates: everything computed from them passes through the node."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir

from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits


def dominated_values(graph: DataflowGraph, index: int) -> Iterator[tuple[onnx_ir.Value, int]]:
    """Yield the values that one node post-dominates: every path from them to a graph output goes through it.

    This is the usual definition of post-dominance, for values instead of nodes: neither the value nor anything
    computed from it before the node is read by a node that does not lead to this one, or is an output of the
    graph.

    Args:
        graph: The graph.
        index: The node.

    Yields:
        Each such value, the nearest first (by the highest producer; values that no node produces come last), with
        the mask of the nodes between it and the node.
    """
    before = graph.ancestors[index]
    closed = 1 << index  # the node, and those before it all of whose results are only read in here
    for node in reversed(list(iterate_bits(before))):
        for value in graph.nodes[node].outputs:
            readers = graph.users(value)
            if readers and not readers & ~closed and not graph.is_graph_output(value):
                yield value, _between(graph, readers, before)
        if not graph.successors[node] & ~closed and not graph.outputs_mask >> node & 1:
            closed |= 1 << node
    given = (value for value in graph.read_values(iterate_bits(before | 1 << index)) if graph.producer(value) is None)
    for value in dict.fromkeys(given):
        readers = graph.users(value)
        if not readers & ~closed and not graph.is_graph_output(value):
            yield value, _between(graph, readers, before)


def _between(graph: DataflowGraph, readers: int, before: int) -> int:
    return (readers | graph.descendants_of(readers)) & before
