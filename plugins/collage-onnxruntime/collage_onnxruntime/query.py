"""Asking ONNX Runtime which nodes of a model it refuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx_ir

from collage_core.contract import KernelFunction
from collage_core.ir.canonical import structural_hash
from collage_core.ir.dataflow import DataflowGraph
from collage_core.ir.extract import extract
from collage_onnxruntime.kernel import one_line
from collage_onnxruntime.weights import detach, session_values


def refusals(function: KernelFunction) -> Mapping[str, str] | None:
    """Reason by name of each refused node; None if only the whole is refused, never a node."""
    if _refusal(function.model) is None:
        return {}
    graph = DataflowGraph(function.model)
    known: dict[str, str | None] = {}
    reasons: dict[str, str] = {}
    for index, node in enumerate(graph.nodes):
        if graph.is_host(index):
            continue
        alone = 1 << index
        key = structural_hash(graph, alone)
        if key not in known:
            known[key] = _refusal(extract(graph, alone, name="node").model)
        if (reason := known[key]) is not None:
            reasons[str(node.name)] = reason
    return reasons or None


def _refusal(model: onnx_ir.Model) -> str | None:
    """Why no session can be made of a model; None if one can. Nothing is optimised: only kernels are looked up."""
    import onnxruntime

    options: Any = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.disable_prepacking", "1")
    proto, weights = detach(model)
    options.add_external_initializers(*session_values(weights))
    try:
        onnxruntime.InferenceSession(proto, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        return one_line(error)
    return None
