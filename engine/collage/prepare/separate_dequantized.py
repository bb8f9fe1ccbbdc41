"""Give every operator that reads a dequantised tensor its own DequantizeLinear."""

from __future__ import annotations

import onnx_ir as ir

from collage_core.ir.operators.quantised import is_dequantize


def separate_dequantized(graph: ir.Graph) -> bool:
    """Copy each DequantizeLinear that several nodes, or a node and the caller, read; say whether there was one.

    A toolchain makes one integer kernel of an operator and what converts around it, so what two operators share would
    tie them into one candidate: a residual block by the tensor it begins with. ONNX Runtime copies them when it loads
    a model (`EnsureUniqueDQForNodeUnit`), and where they become part of a kernel they cost nothing.
    """
    changed = False
    for node in list(graph):
        if not is_dequantize(node):
            continue
        value = node.outputs[0]
        readers = dict.fromkeys(user for user, _ in value.uses())
        own = [reader for reader in readers if reader.graph is graph]
        kept = value.is_graph_output() or len(own) < len(readers)  # bodies, and the caller, go on reading the first
        for reader in own if kept else own[1:]:
            _reads_its_own(graph, node, reader)
            changed = True
    return changed


def _reads_its_own(graph: ir.Graph, node: ir.Node, reader: ir.Node) -> None:
    value = node.outputs[0]
    output = ir.Value(name=f"{value.name}_for_{reader.name}", type=value.type, shape=value.shape)
    copy = ir.Node(
        node.domain,
        node.op_type,
        node.inputs,
        list(node.attributes.values()),
        outputs=[output],
        version=node.version,
        name=f"{node.name}_for_{reader.name}",
        metadata_props=dict(node.metadata_props),
    )
    graph.insert_after(node, copy)
    for position, read in enumerate(reader.inputs):
        if read is value:
            reader.replace_input_with(position, output)
