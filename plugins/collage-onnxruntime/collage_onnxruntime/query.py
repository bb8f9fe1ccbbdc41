"""Query ONNX Runtime for the nodes of a model that it refuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx_ir

from collage_core.contract import KernelFunction
from collage_core.ir.graph.refused import refused_nodes
from collage_onnxruntime.kernel import one_line
from collage_onnxruntime.weights import detach, session_values


def refusals(function: KernelFunction) -> Mapping[str, str] | None:
    """Return each refused node's reason by name; None if only the whole is refused, but no single node."""
    return refused_nodes(function.model, _refusal)


def _refusal(model: onnx_ir.Model) -> str | None:
    """Return why no session can be created for a model; None if one can.

    Nothing is optimised: only kernels are looked up.
    """
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
