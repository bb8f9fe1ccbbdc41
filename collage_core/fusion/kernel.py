"""Convert a sub-graph into the function that a toolchain lowers."""

from __future__ import annotations

from collage_core.contract.function import KernelFunction
from collage_core.fusion.sub_graph import SubGraph
from collage_core.ir.graph.extract import COMPOSITE_METADATA, extract


def kernel_function(sub_graph: SubGraph, name: str) -> KernelFunction:
    """Extract a sub-graph as a kernel function.

    Equal sub-graphs give equal functions up to names and weights; weights are shared with the graph's model.

    Args:
        sub_graph: The nodes of the kernel.
        name: Global symbol, a valid C identifier.

    Raises:
        ValueError: If `name` is not an identifier.
    """
    if not (name.isascii() and name.isidentifier()):
        raise ValueError(f"{name!r} is not a C identifier")
    extraction = extract(sub_graph.graph, sub_graph.nodes, name=name, composites=sub_graph.composites)
    for key, value in sub_graph.attributes:
        extraction.model.metadata_props[f"{COMPOSITE_METADATA}.{key}"] = value
    return KernelFunction(
        name=name,
        model=extraction.model,
        inputs=extraction.inputs,
        outputs=extraction.outputs,
        composite=sub_graph.label,
    )
