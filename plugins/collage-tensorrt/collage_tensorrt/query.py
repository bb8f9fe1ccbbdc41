"""Query the importer for the nodes of a model that it refuses; this needs no GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx_ir

from collage_core.ir.graph.refused import refused_nodes
from collage_tensorrt.network import read


def problem(library: Any, model: onnx_ir.Model) -> str | None:
    """Return why a model cannot become a network; None if it can."""
    answer = read(library, model)
    return answer if isinstance(answer, str) else None


def refusals(library: Any, model: onnx_ir.Model) -> Mapping[str, str] | None:
    """Return the reason for each node the importer refuses, by the node's name.

    The importer reports all nodes that fail its checks at once, but continues to the others only when there are
    none, and stops at the first that fails there. So, unless it accepts the whole model, each distinct node is
    queried on its own, at about a millisecond each.
    """
    return refused_nodes(model, lambda part: problem(library, part))
