"""Convert a sub-graph into the function that a toolchain lowers."""

from __future__ import annotations

import onnx_ir

from collage_core.contract.function import KernelFunction
from collage_core.fusion.sub_graph import SubGraph
from collage_core.ir.graph.extract import extract
from collage_core.ir.graph.metadata_keys import COMPOSITE_METADATA
from collage_core.ir.operators.quantising import fold_quantised_weights, quantisable, quantise_products
from collage_core.ir.values.content import tensor_content_hash


def kernel_function(sub_graph: SubGraph, name: str) -> KernelFunction:
    """Extract a sub-graph as a kernel function.

    Equal sub-graphs give equal functions up to names, weights and ranges; weights are shared with the graph's model.

    Args:
        sub_graph: The nodes of the kernel.
        name: Global symbol, a valid C identifier.

    Raises:
        ValueError: If `name` is not an identifier.
    """
    if not (name.isascii() and name.isidentifier()):
        raise ValueError(f"{name!r} is not a C identifier")
    extraction = extract(sub_graph.graph, sub_graph.nodes, name=name, composites=sub_graph.composites)
    constants: dict[str, str] | None = None
    if sub_graph.int8:
        body = extraction.model.graph
        shared = {str(value.name): value.const_value for value in body.initializers.values()}
        quantise_body(body, sub_graph, constants_are_nodes=False)
        fold_quantised_weights(body)
        constants = {name: tensor_content_hash(t) for name, t in shared.items() if t and name in body.initializers}
    for key, value in sub_graph.attributes:
        extraction.model.metadata_props[f"{COMPOSITE_METADATA}.{key}"] = value
    return KernelFunction(
        name=name,
        model=extraction.model,
        inputs=extraction.inputs,
        outputs=extraction.outputs,
        composite=sub_graph.label,
        constants=constants,  # type: ignore[arg-type]  # None for all
    )


def quantise_body(body: onnx_ir.Graph, sub_graph: SubGraph, *, constants_are_nodes: bool) -> None:
    """Quantise the products of a copy of a sub-graph that are quantised in it, in place.

    Args:
        body: The copy, whose nodes have the names of the originals.
        sub_graph: The original.
        constants_are_nodes: See `quantise_products`.
    """
    if not sub_graph.int8:
        return
    graph, nodes = sub_graph.graph, {node.name: node for node in body}
    chosen = []
    for product in sub_graph.int8:
        original = quantisable(graph.nodes[product.node])
        if original is None:
            raise ValueError(f"node {graph.names[product.node]!r} is no product that can be quantised")
        chosen.append((nodes[graph.names[product.node]], product.span, original))
    quantise_products(body, chosen, constants_are_nodes=constants_are_nodes)
