"""Binds a model's free input dimensions and infers the type and shape of every value."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import onnx
import onnx_ir as ir
import onnx_ir.passes.common as common_passes

from collage_core.errors import InputShapeError, InvalidModelError, did_you_mean
from collage_core.ir.quiet import only_errors_of

_MOST_ELEMENTS = 2**60
"""Of an input; sizes in bytes and offsets stay below 2^63, beyond which neither ONNX nor NumPy has any."""

_DATA_LIMIT = 1024
"""Elements of a constant that may decide a shape (axes, target shapes, pads, scales are far smaller)."""


def bound_shapes(model: ir.Model, input_shapes: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
    """The static shape of each input that is a tensor and no constant, by name; the model stays as it is.

    A symbol (`batch`) bound through one input is bound wherever it occurs.

    Raises:
        InputShapeError: If a free dimension stays free, a shape contradicts the model or another one, or a name is no
            input of the model.
        InvalidModelError: If the model itself declares what is no shape.
    """
    inputs = {str(value.name): value for value in model.graph.inputs if not value.is_initializer()}
    for name in input_shapes:
        if name not in inputs:
            raise InputShapeError(
                name,
                f"the model has no such input to give a shape to; it has {', '.join(map(repr, inputs)) or 'none'}"
                f"{did_you_mean(name, inputs)}",
            )
    shapes, symbols = _given_shapes(inputs, input_shapes)
    for name, value in inputs.items():
        if name in shapes or not isinstance(value.type, (ir.TensorType, ir.SparseTensorType)):
            continue
        if value.shape is None:
            raise InputShapeError(name, f"its rank is unknown; give it with {_flag(name, None)}")
        dims = [symbols.get(_symbol(dim), dim) for dim in value.shape]
        free = [str(dim) for dim in dims if not isinstance(dim, int)]
        if free:
            raise InputShapeError(
                name,
                f"dimension {', '.join(free)} of {list(map(str, dims))} is free; "
                f"give the shape with {_flag(name, dims)}",
            )
        shapes[name] = tuple(int(dim) for dim in dims if isinstance(dim, int))
        if min(shapes[name], default=0) < 0:
            raise InvalidModelError(f"its input {name!r} is declared as {value.shape}, which has a negative extent")
    return shapes


def bind_input_shapes(model: ir.Model, input_shapes: Mapping[str, Sequence[int]]) -> None:
    """Give every graph input its static shape, in place.

    Raises:
        ModelError: As `bound_shapes` does.
    """
    shapes = bound_shapes(model, input_shapes)
    free = free_inputs(model)
    for value in model.graph.inputs:
        if value.name in shapes and static_shape(value) != shapes[value.name]:
            value.shape = ir.Shape(shapes[value.name])
    if input_shapes or free:
        _forget_shapes(model)


def free_inputs(model: ir.Model) -> frozenset[str]:
    """Names of the graph inputs of a model, as given, whose shape is not static and no constant decides."""
    return frozenset(
        str(value.name)
        for value in model.graph.inputs
        if isinstance(value.type, (ir.TensorType, ir.SparseTensorType))
        and static_shape(value) is None
        and not value.is_initializer()
    )


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


def _given_shapes(
    inputs: Mapping[str, ir.Value], input_shapes: Mapping[str, Sequence[int]]
) -> tuple[dict[str, tuple[int, ...]], dict[str, int]]:
    """What the user gave by input, and what that makes each symbol."""
    shapes: dict[str, tuple[int, ...]] = {}
    symbols: dict[str, int] = {}
    owners: dict[str, str] = {}
    for name, given in input_shapes.items():
        value = inputs[name]
        if value.type is not None and not isinstance(value.type, (ir.TensorType, ir.SparseTensorType)):
            raise InputShapeError(name, "it is no tensor, so no shape can be given to it")
        shape = [int(dim) for dim in given]
        if any(dim < 0 for dim in shape):
            raise InputShapeError(name, f"{shape} has a negative dimension")
        if math.prod(dim or 1 for dim in shape) > _MOST_ELEMENTS:
            raise InputShapeError(name, f"{shape} has more elements than there are addresses")
        if value.shape is not None:
            if len(value.shape) != len(shape):
                raise InputShapeError(name, f"{shape} has {len(shape)} dimensions, the model declares {value.shape}")
            for dim, size in zip(value.shape, shape, strict=True):
                if isinstance(dim, int) and dim != size:
                    raise InputShapeError(name, f"{shape} contradicts the model's {value.shape}")
                symbol = _symbol(dim)
                if symbol and symbols.setdefault(symbol, size) != size:
                    raise InputShapeError(
                        name,
                        f"{shape} makes {symbol} {size}, but input {owners[symbol]!r} makes it {symbols[symbol]}",
                    )
                owners.setdefault(symbol, name)
        shapes[name] = tuple(shape)
    return shapes, symbols


def _symbol(dim: int | ir.SymbolicDim) -> str:
    return "" if isinstance(dim, int) or dim.value is None else str(dim.value)


def _flag(name: str, dims: Sequence[Any] | None) -> str:
    shape = "..." if dims is None else ",".join(str(d) if isinstance(d, int) else "N" for d in dims)
    return f"--input-shapes {name}:[{shape}]"


def _forget_shapes(model: ir.Model) -> None:
    """Drop the declared shapes of computed values.

    An exporter's declarations may hold sizes seen while tracing, or symbols that now have a value. Those of
    operators that nobody here can infer are kept.
    """
    for node in model.graph.all_nodes():
        if node.domain in ("", "ai.onnx"):
            for value in node.outputs:
                value.shape = None


def _type_initializers(model: ir.Model) -> None:
    for graph in all_graphs(model.graph):
        for value in graph.initializers.values():
            if value.const_value is not None:
                value.shape = ir.Shape(value.const_value.shape.numpy())
                value.dtype = value.const_value.dtype


def _type_results_of_bodies(model: ir.Model) -> None:
    """Says of which type the sequences and optional values are that a body gives.

    onnx_ir takes from ONNX's inference the element type only, and makes a tensor of a value that has no type yet.
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
    return ir.Shape(
        [
            mine if isinstance(mine, int) or not isinstance(theirs, int) else theirs
            for mine, theirs in zip(inferred, declared, strict=True)
        ]
    )
