"""Whether an engine gives equal bits for equal inputs, going by what NVIDIA documents.

NVIDIA, *TensorRT Developer Guide*, "How TensorRT Works", "Determinism": two builds may choose different kernels, since
these are timed; but an engine that has been built is deterministic, in that the same input in the same environment
gives the same output, with the exception of random fills (`IFillLayer`), whose state lives in the execution context.
Such chance is the model's own. So an engine says that it is deterministic, except for two things:

- Scattering. Which of several values for one place stays is left open by ONNX; and what is to be added up goes to the
  plug-in ScatterElements, which uses atomic operations (`reducer.cuh` in NVIDIA/TensorRT), so it adds in the order in
  which they come. The guide's promise is about layers, not about plug-ins.
- TensorRT for RTX where a size is left open: by default it runs a general kernel first, and the one for the size at
  hand once that has been compiled in the background (`DynamicShapesKernelSpecializationStrategy` in its API reference).
"""

from __future__ import annotations

import itertools

import onnx_ir
from onnx_ir.traversal import RecursiveGraphIterator

from collage_tensorrt.editions import Edition

SCATTERING = frozenset({"Scatter", "ScatterElements", "ScatterND"})


def why_other_bits(edition: Edition, model: onnx_ir.Model) -> str:
    """Why engines of a model may give other bits each time; empty if they do not.

    Args:
        edition: Which TensorRT.
        model: What is computed.
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
