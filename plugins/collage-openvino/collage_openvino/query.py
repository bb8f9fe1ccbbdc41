"""Asking OpenVINO which nodes of a model it refuses."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx_ir

from collage_core.contract import KernelFunction, Target
from collage_core.ir.canonical import structural_hash
from collage_core.ir.dataflow import DataflowGraph
from collage_core.ir.extract import extract
from collage_openvino.kernel import one_line, properties
from collage_openvino.weights import read, source_of


def refusals(core: Any, target: Target, function: KernelFunction) -> Mapping[str, str] | None:
    """Reason by name of each refused node; None if only the whole is refused, never a node."""
    if _refusal(core, target, function.model) is None:
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
            known[key] = _refusal(core, target, extract(graph, alone, name="node").model)
        if (reason := known[key]) is not None:
            reasons[str(node.name)] = reason
    return reasons or None


def _refusal(core: Any, target: Target, model: onnx_ir.Model) -> str | None:
    """Why a model cannot be compiled; None if it can."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            core.compile_model(read(core, source_of(model), Path(folder)), "CPU", properties(target, 1))
        except Exception as error:
            return one_line(error)
    return None
