"""Count groups of products that can be in lower precision."""

from __future__ import annotations

from collage.precision.sensitivity.sensitivities import Sensitivities
from collage_core.contract import Target
from collage_core.ir.graph.dataflow import DataflowGraph


def most_within(found: Sensitivities, graph: DataflowGraph, nodes: int, target: Target, bound: float) -> int:
    """Return how many groups can be quantised by price within a bound on the error of one kernel; -1 if not even 0."""
    order = found.by_price(target)
    for count in range(len(order), -1, -1):
        if found.square(found.quantised(graph, nodes, target, order[:count])) <= bound**2:
            return count
    return -1
