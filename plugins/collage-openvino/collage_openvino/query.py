"""Query OpenVINO for the nodes of a model that it refuses."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx_ir

from collage_core.contract import KernelFunction, Target
from collage_core.ir.graph.refused import refused_nodes
from collage_openvino.kernel import one_line, properties
from collage_openvino.weights import read, source_of


def refusals(core: Any, target: Target, function: KernelFunction) -> Mapping[str, str] | None:
    """Return each refused node's reason by name; None if only the whole is refused, but no single node."""
    return refused_nodes(function.model, lambda model: _refusal(core, target, model))


def _refusal(core: Any, target: Target, model: onnx_ir.Model) -> str | None:
    """Return why a model cannot be compiled; None if it can."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            core.compile_model(read(core, source_of(model), Path(folder)), "CPU", properties(target, 1))
        except Exception as error:
            return one_line(error)
    return None
