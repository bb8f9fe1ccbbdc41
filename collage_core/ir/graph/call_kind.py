"""Kinds of operators defined by a body: model functions, custom operators, newer standard operators.

A call is as hard to fuse as the hardest operator in its body. The body is inspected with the types of the call, so
its operators are refined by shapes like any others; shape computations in the body are ignored.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import onnx
import onnx_ir
from onnx import defs, inliner

from collage_core.ir.graph.walk import bodies
from collage_core.ir.operators.op_kind import RANDOM_OPS, OpPatternKind, known_kind
from collage_core.ir.operators.refined_kind import kind_of
from collage_core.ir.operators.value_bounds import spec_of
from collage_core.ir.values.content import constant_of
from collage_core.ir.values.tensor_spec import TensorSpec, ValueKind

_log = logging.getLogger(__name__)
_DATA_LIMIT = 1024
"""Maximum number of elements of a constant operand that may determine a shape; larger ones are weights."""
_DEEPEST = 8
"""Maximum nesting depth of custom operators in bodies of custom operators; ends recursion in cycles."""
_ASKS_FOR_SHAPES = frozenset({"Shape", "Size"})

SpecOf = Callable[[onnx_ir.Value], TensorSpec]


def kind_of_node(node: onnx_ir.Node, model: onnx_ir.Model, spec: SpecOf, *, depth: int = 0) -> OpPatternKind:
    """Return the kind of one node, derived from its body if `known_kind` does not know the operator.

    Args:
        node: The node.
        model: The node's model, whose functions it may call.
        spec: Returns the spec of a value.
        depth: Number of enclosing bodies.

    Returns:
        The kind; OPAQUE if an output is not a planned tensor, or for an unknown operator without a body.
    """
    outputs = [spec(value) for value in node.outputs]
    is_call = node.op_identifier() in model.functions
    if known_kind(node.op_type, node.domain) is not None and not is_call:
        inputs = [None if value is None else spec(value) for value in node.inputs]
        return kind_of(node.op_type, node.domain, inputs, outputs, plain_attributes(node))
    if any(each.kind is not ValueKind.PLANNED for each in outputs if each.name):
        return OpPatternKind.OPAQUE
    if depth == _DEEPEST or any(True for _ in bodies(node)):
        return OpPatternKind.OPAQUE
    body = _body(node, model, local=is_call)
    return OpPatternKind.OPAQUE if body is None else _hardest(body, depth + 1)


def plain_attributes(node: onnx_ir.Node) -> dict[str, object]:
    """Return a node's attributes that are numbers, strings or sequences of these, by name."""
    simple = onnx_ir.AttributeType
    return {
        name: tuple(attribute.value) if isinstance(attribute.value, (list, tuple)) else attribute.value
        for name, attribute in node.attributes.items()
        if not attribute.is_ref()
        and attribute.type in (simple.INT, simple.INTS, simple.FLOAT, simple.FLOATS, simple.STRING, simple.STRINGS)
    }


def _body(node: onnx_ir.Node, model: onnx_ir.Model, *, local: bool) -> onnx_ir.Model | None:
    """Inline the body of a call into a model; return None if there is no body."""
    version = node.version or model.opset_imports.get(node.domain, 0)
    if not local and not _standard_has_body(node, version):
        return None
    alone = _alone(node, model)
    try:
        inlined = (
            inliner.inline_local_functions(alone)
            if local
            else inliner.inline_selected_functions(alone, [(node.domain, node.op_type)], inline_schema_functions=True)
        )
        if any(each.op_type == node.op_type and each.domain == node.domain for each in inlined.graph.node):
            return None  # a body that depends on types, and no body for these
        body: onnx_ir.Model = onnx_ir.from_proto(onnx.shape_inference.infer_shapes(inlined, data_prop=True))
        return body
    except Exception as error:  # whatever ONNX's own code finds wrong with somebody's function
        _log.debug("no body of %s::%s: %s", node.domain, node.op_type, error)
        return None


def _standard_has_body(node: onnx_ir.Node, version: int) -> bool:
    try:
        schema = defs.get_schema(node.op_type, version, node.domain)
    except defs.SchemaError:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)


def _alone(node: onnx_ir.Node, model: onnx_ir.Model) -> onnx.ModelProto:
    """Build a model of one call: small constants are kept, all other operands are inputs of their type."""
    proto = onnx_ir.to_proto(node)
    graph = onnx.GraphProto(name="call", node=[proto])
    for value in dict.fromkeys(value for value in node.inputs if value is not None):
        tensor = constant_of(value)
        if tensor is not None and tensor.size <= _DATA_LIMIT:
            stored = onnx_ir.to_proto(tensor)
            stored.name = str(value.name)
            graph.initializer.append(stored)
        else:
            graph.input.append(onnx_ir.to_proto(value))
    graph.output.extend(onnx_ir.to_proto(value) for value in node.outputs if value.name)
    return onnx.ModelProto(
        ir_version=max(model.ir_version or 0, 10),
        graph=graph,
        opset_import=[
            onnx.OperatorSetIdProto(domain=domain, version=version) for domain, version in model.opset_imports.items()
        ],
        functions=[onnx_ir.to_proto(function) for function in model.functions.values()],
    )


def _hardest(body: onnx_ir.Model, depth: int) -> OpPatternKind:
    """Return the largest kind among operators that process data; INJECTIVE if the body has none."""

    def spec(value: onnx_ir.Value) -> TensorSpec:
        return spec_of(value, {})

    data = set(body.graph.inputs)
    found = []
    for node in body.graph:
        works = node.op_type in RANDOM_OPS or any(value in data for value in node.inputs)
        works |= any(True for _ in bodies(node))  # they may read data from outside
        if not works or (node.op_type in _ASKS_FOR_SHAPES and node.domain == ""):
            continue
        data.update(node.outputs)
        known = known_kind(node.op_type, node.domain)
        planned = all(spec(value).kind is ValueKind.PLANNED for value in node.outputs if value.name)
        # the call's own outputs are planned, so loops are known where inference did not find them
        found.append(known if known is not None and not planned else kind_of_node(node, body, spec, depth=depth))
    return max(found, default=OpPatternKind.INJECTIVE)
