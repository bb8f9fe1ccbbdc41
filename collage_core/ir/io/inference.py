"""Infer the type and shape of every value with ONNX's own inference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx
import onnx_ir as ir
import onnx_ir.passes.common as common_passes

from collage_core.ir.io.quiet import only_errors_of

_DATA_LIMIT = 1024
"""Maximum number of elements of a constant that may determine a shape.

Axes, target shapes, pads and scales are far smaller.
"""


def infer_model(model: ir.Model) -> None:
    """Infer types and shapes over the whole model, sub-graphs included, in place.

    Weights do not travel: onnx_ir hands ONNX's C++ code a model without its large initializers.
    """
    _type_initializers(model)
    _type_results_of_bodies(model)
    with only_errors_of(
        "onnx_ir.passes.common.shape_inference"
    ):  # it warns where a domain is unknown, which is no news
        common_passes.ShapeInferencePass(check_type=False, strict_mode=False, data_prop=True)(model)


def infer_node(node: ir.Node, opset_imports: Mapping[str, int]) -> None:
    """Infer the outputs of one node from its inputs' types, shapes and constant values, in place.

    What is inferred wins over what the model declares; what cannot be inferred leaves the declaration.
    """
    version = opset_imports.get(node.domain)
    if version is None or not onnx.defs.has(node.op_type, version, node.domain):
        return
    types: dict[str, onnx.TypeProto] = {}
    data: dict[str, onnx.TensorProto] = {}
    for value in node.inputs:
        if value is None:
            continue
        if value.type is None:
            return
        kind = ir.serde.serialize_type(value.type)
        if value.shape is not None:
            ir.serde.serialize_shape_into(kind, value.shape)
        types[str(value.name)] = kind
        constant = value.const_value
        if constant is not None and constant.size <= _DATA_LIMIT and constant.dtype != ir.DataType.STRING:
            data[str(value.name)] = ir.serde.serialize_tensor(constant)
    schema = onnx.defs.get_schema(node.op_type, version, node.domain)
    try:
        inferred = onnx.shape_inference.infer_node_outputs(
            schema,
            ir.serde.serialize_node(node),
            types,
            data,
            opset_imports=[onnx.helper.make_opsetid(d, v) for d, v in opset_imports.items()],
        )
    except Exception:  # an invalid node: toolchains say what is wrong with it better than this can
        return
    for output in node.outputs:
        proto = inferred.get(str(output.name))
        if proto is None:
            continue
        if (kind_found := ir.serde.deserialize_type_proto_for_type(proto)) is not None:
            output.type = kind_found
        shape = ir.serde.deserialize_type_proto_for_shape(proto)
        if shape is not None:
            output.shape = _merged(shape, output.shape)


def infer_loop_state(node: ir.Node, opset_imports: Mapping[str, int]) -> None:
    """Give the state of a Loop its shape where no step changes it, in place.

    ONNX's inference gives up on the shape of any state that might change. By induction: if the body keeps the initial
    shapes, assuming them, they hold at every step. Otherwise they are forgotten again.
    """
    body = node.attributes["body"].as_graph()
    state, initial = body.inputs[2:], node.inputs[2:]
    shapes = [static_shape(value) for value in initial]
    if any(shape is None for shape in shapes):
        return
    before = [value.shape for value in state]
    known = [(value, value.shape) for inner in body.all_nodes() for value in inner.outputs]
    for value, shape in zip(state, shapes, strict=True):
        value.shape = ir.Shape(shape or ())
    for inner in body:
        infer_node(inner, opset_imports)
    results = body.outputs[1 : 1 + len(state)]
    if [static_shape(value) for value in results] == shapes:
        for value, shape in zip(node.outputs, shapes, strict=False):
            value.shape = ir.Shape(shape or ())
        return
    for value, shape_before in [*zip(state, before, strict=True), *known]:
        value.shape = shape_before


def static_shape(value: ir.Value | None) -> tuple[int, ...] | None:
    """Return a value's shape if every dimension is known."""
    if value is None or value.shape is None or not value.shape.is_static():
        return None
    return tuple(int(dim) for dim in value.shape.numpy())


def all_graphs(graph: ir.Graph) -> Iterator[ir.Graph]:
    """Yield a graph and every sub-graph in it."""
    yield graph
    yield from graph.subgraphs()


def _type_initializers(model: ir.Model) -> None:
    for graph in all_graphs(model.graph):
        for value in graph.initializers.values():
            if value.const_value is not None:
                value.shape = ir.Shape(value.const_value.shape.numpy())
                value.dtype = value.const_value.dtype


def _type_results_of_bodies(model: ir.Model) -> None:
    """Set the types of node outputs that are sequences or optional values returned by a body.

    onnx_ir takes only the element type from ONNX's inference and makes a tensor of a value that has no type yet.
    """
    for node in model.graph.all_nodes():
        if node.domain not in ("", "ai.onnx") or node.op_type not in ("If", "Loop", "SequenceMap"):
            continue
        body = node.attributes["then_branch" if node.op_type == "If" else "body"].as_graph()
        results = body.outputs[1:] if node.op_type == "Loop" else body.outputs
        for value, result in zip(node.outputs, results, strict=False):
            if value.type is not None or result.type is None:
                continue
            if node.op_type == "SequenceMap":
                value.type = ir.SequenceType(result.type)
            elif not isinstance(result.type, ir.TensorType):
                value.type = result.type


def _merged(inferred: ir.Shape, declared: ir.Shape | None) -> ir.Shape:
    if declared is None or len(declared) != len(inferred):
        return inferred
    # a size wins over a symbol, and a symbol over nothing: of one node alone no shape arithmetic is known
    return ir.Shape(
        [
            mine if isinstance(mine, int) or not (isinstance(theirs, int) or mine.value is None) else theirs
            for mine, theirs in zip(inferred, declared, strict=True)
        ]
    )
