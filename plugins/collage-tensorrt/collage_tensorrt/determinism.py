"""Decide whether an engine is deterministic, according to NVIDIA's documentation.

NVIDIA, *TensorRT Developer Guide*, "How TensorRT Works", "Determinism": two builds may choose different
kernels, since these are timed; but an engine that has been built is deterministic, in that the same input
in the same environment gives the same output, with the exception of random fills (`IFillLayer`), whose
state lives in the execution context. That randomness belongs to the model. So an engine is declared
deterministic, with two exceptions:

- Scattering. ONNX does not define which of several values for one position is kept; and sums go to the plug-in
  ScatterElements, which uses atomic operations (`reducer.cuh` in NVIDIA/TensorRT), so it adds in order of arrival.
  The guide's guarantee is about layers, not about plug-ins.
- TensorRT for RTX with an open size: by default it runs a general kernel first, and the one for the actual size
  once that has been compiled in the background (`DynamicShapesKernelSpecializationStrategy` in its API
  reference).
"""

from __future__ import annotations

import itertools

import onnx_ir
from onnx_ir.traversal import RecursiveGraphIterator

from collage_tensorrt.editions import Edition

SCATTERING = frozenset({"Scatter", "ScatterElements", "ScatterND"})


def why_other_bits(edition: Edition, model: onnx_ir.Model) -> str:
    """Return why engines of a model may be non-deterministic; empty if they are deterministic.

    Args:
        edition: Edition of TensorRT.
        model: The model to check.
    """
    graphs: list[onnx_ir.Graph | onnx_ir.Function] = [model.graph, *model.functions.values()]
    for node in itertools.chain.from_iterable(RecursiveGraphIterator(graph) for graph in graphs):
        if not node.domain and node.op_type in SCATTERING:
            return f"{node.op_type} {node.name!r} may write to one place several times, in an order left to chance"
    if edition.ahead_of_time:
        for value in model.graph.inputs:
            if value.shape is not None and not value.shape.is_static():
                return f"the size of {value.name!r} is open, so another kernel takes over while it runs"
    return ""
