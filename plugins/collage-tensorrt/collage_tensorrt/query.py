"""Asking the importer which nodes of a model it refuses. This needs no GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx_ir

from collage_core.ir.graph.refused import refused_nodes
from collage_tensorrt.network import read


def problem(library: Any, model: onnx_ir.Model) -> str | None:
    """Why a model cannot become a network; None if it can."""
    answer = read(library, model)
    return answer if isinstance(answer, str) else None


def refusals(library: Any, model: onnx_ir.Model) -> Mapping[str, str] | None:
    """Reason by name of each node the importer refuses.

    It names the nodes that fail its checks all at once, but goes on to the others only when there are none, and stops
    at the first that fails there. So, unless it takes the whole, each distinct node is asked about alone: about a
    millisecond each.
    """
    return refused_nodes(model, lambda part: problem(library, part))
