"""Make graph outputs that are constants views of initializers, which need no kernel and so no toolchain."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from collage.prepare.fold import fresh_name


def make_outputs_views(graph: ir.Graph) -> None:
    """Replace each Constant node that gives a graph output by an Identity of an initializer, in place.

    Nodes that read the output read the initializer then. Strings and sparse tensors stay.

    Args:
        graph: The main graph of a model.
    """
    for node in [node for node in graph if node.op_type == "Constant" and node.domain in ("", "ai.onnx")]:
        output = node.outputs[0]
        tensor = _dense(node)
        if tensor is None or not output.is_graph_output():
            continue
        constant = ir.val(fresh_name(graph, f"{output.name}_value"), const_value=tensor)
        view = ir.Node("", "Identity", [constant], name=node.name)
        shown = view.outputs[0]
        shown.type, shown.shape = constant.type, constant.shape
        graph.register_initializer(constant)
        graph.insert_before(node, view)
        for place, value in enumerate(graph.outputs):
            if value is output:
                graph.outputs[place] = shown
        output.replace_all_uses_with(constant)
        shown.name, output.name = output.name, None
        graph.remove(node, safe=True)


def _dense(node: ir.Node) -> ir.TensorProtocol | None:
    """Return the value of a Constant node; None if it is of strings, or sparse."""
    attributes = node.attributes
    if (given := attributes.get("value")) is not None:
        tensor = given.as_tensor()
        return None if tensor.dtype == ir.DataType.STRING else tensor
    for name, dtype in (
        ("value_float", np.float32),
        ("value_floats", np.float32),
        ("value_int", np.int64),
        ("value_ints", np.int64),
    ):
        if (given := attributes.get(name)) is not None:
            return ir.tensor(np.array(given.value, dtype))
    return None
