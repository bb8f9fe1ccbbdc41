"""Whether kernels can run one after the other, by running them on paper."""

from __future__ import annotations

from collections.abc import Sequence

from collage_core.ir.graph.dataflow import DataflowGraph


def can_run(graph: DataflowGraph, kernels: Sequence[int]) -> bool:
    """Takes any kernel whose inputs are there until none is left; views outside of kernels come as soon as they can."""
    inside = 0
    for nodes in kernels:
        assert not nodes & inside, "kernels overlap"
        inside |= nodes
    waiting = [*kernels, *(1 << index for index in range(len(graph)) if not inside >> index & 1)]
    done = 0
    while waiting:
        ready = [nodes for nodes in waiting if not _read(graph, nodes) & ~done & ~nodes]
        if not ready:
            return False
        for nodes in ready:
            done |= nodes
            waiting.remove(nodes)
    return True


def _read(graph: DataflowGraph, nodes: int) -> int:
    producers = 0
    for index, operands in enumerate(graph.operands):
        if nodes >> index & 1:
            for value in operands:
                producer = graph.producer(value) if value is not None else None
                if producer is not None:
                    producers |= 1 << producer
    return producers
