"""Find the nodes that a library refuses, if it only accepts or rejects whole models."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx_ir

from collage_core.ir.graph.canonical import structural_hash
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.extract import extract


def refused_nodes(model: onnx_ir.Model, ask: Callable[[onnx_ir.Model], str | None]) -> Mapping[str, str] | None:
    """Query a whole model and, if it is refused, each distinct node alone: an implementation of `collage_query`.

    Libraries stop at the first node they refuse, or blame its neighbours; a node that is refused alone is itself the
    reason.

    Args:
        model: The model; its nodes have names.
        ask: Returns why the library refuses a model; None if the library takes it.

    Returns:
        Reason by name of each refused node, with one reason for nodes of equal structure; empty if the whole model is
        taken. None if the whole model is refused, but no node alone.
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
