"""Finding the nodes that a library refuses when it only says yes or no to a whole model."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx_ir

from collage_core.ir.graph.canonical import structural_hash
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.extract import extract


def refused_nodes(model: onnx_ir.Model, ask: Callable[[onnx_ir.Model], str | None]) -> Mapping[str, str] | None:
    """Asks about the whole, and if that is refused about each distinct node alone: an answer to `collage_query`.

    Libraries stop at the first node they refuse, or blame its neighbours; alone, a node is refused for itself.

    Args:
        model: The model; its nodes have names.
        ask: Why the library refuses a model; None if it takes it.

    Returns:
        Reason by name of each refused node, those of equal structure alike; none if the whole is taken. None if only
        the whole is refused, never a node.
    """
    if ask(model) is None:
        return {}
    graph = DataflowGraph(model)
    known: dict[str, str | None] = {}
    reasons: dict[str, str] = {}
    for index, name in enumerate(graph.names):
        if graph.is_host(index):
            continue
        alone = 1 << index
        key = structural_hash(graph, alone)
        if key not in known:
            known[key] = ask(extract(graph, alone, name="node").model)
        if (reason := known[key]) is not None:
            reasons[name] = reason
    return reasons or None
