"""Attribute unexpected exceptions to an invalid model, by running ONNX's checker only after a failure.

Some models in use are refused by the checker and still run on toolchains, so no model is refused for being
invalid. But most code here assumes that a node follows its operator's schema. Where that fails, the user should
see what is wrong with the model instead of where the failure surfaced.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping

import onnx
import onnx_ir as ir

from collage_core.errors import CollageError, InvalidModelError, NewerModelError
from collage_core.ir.graph.order import circle, described, is_ordered
from collage_core.ir.io.model_io import bring_inside

_PLACEHOLDER_ELEMENTS = 1024


@contextlib.contextmanager
def blamed_on(model: ir.Model) -> Iterator[None]:
    """Convert an unexpected exception into an `InvalidModelError` if the model is invalid.

    Args:
        model: Model being processed. It is checked only if there is an exception.

    Raises:
        InvalidModelError: If ONNX's checker rejects the model; the exception is its cause. Otherwise the exception
            propagates: it is a defect of Collage.
    """
    try:
        yield
    except CollageError:
        raise
    except Exception as error:
        reason = invalidity(model)
        if not reason:
            raise
        raise InvalidModelError(reason) from error


def invalidity(model: ir.Model) -> str:
    """Return why ONNX's checker and its strict shape inference reject a model; empty if they do not."""
    try:
        onnx.checker.check_model(serialized_without(model, large_weights(model)), full_check=True)
    except Exception as error:  # what cannot even be serialised is not valid either
        cause: BaseException = error
        while cause.__cause__ is not None:  # the IR wraps what went wrong in where it did
            cause = cause.__cause__
        lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
        return " ".join(lines[:2]).rstrip(".") or type(cause).__name__
    return ""


def check_sound(model: ir.Model) -> None:
    """See that there is something to compute, that whatever is read exists, and that nodes are what they say.

    ONNX's inference is C++ that trusts nodes to have the inputs, outputs and attributes of their operator: on others it
    has been seen to end the process (onnx 1.23: an output too many).

    Raises:
        InvalidModelError: If there is no output; a node, or an output of a graph, reads a value that nothing gives; a
            node of a known operator cannot be one, or stands before what it reads; or no version of ONNX's operators
            is said.
        NewerModelError: If the model is of a version of ONNX that is not known here.
    """
    if not model.graph.outputs:
        raise InvalidModelError("it has no outputs, so there is nothing to compute")
    if (model.ir_version or 0) > onnx.IR_VERSION:
        raise NewerModelError("IR version", model.ir_version, onnx.IR_VERSION)
    for argument in model.graph.inputs:
        kind = argument.type
        if (kind is None or kind.dtype == ir.DataType.UNDEFINED) and not argument.is_initializer():
            raise InvalidModelError(f"its input {argument.name!r} has no type")
    wholes = [(model.graph, model.opset_imports)]
    wholes += [(each.graph, {**model.opset_imports, **each.opset_imports}) for each in model.functions.values()]
    for graph, imports in wholes:
        _check_version(graph, imports)
        if not is_ordered(graph):
            found = circle(graph)
            how = f"go in a circle: {described(found)}" if found else "stand before what they read; sort the graph"
            raise InvalidModelError(f"its nodes {how}")
    graphs = [(graph, imports) for whole, imports in wholes for graph in (whole, *whole.subgraphs())]
    given = {value for graph, _ in graphs for value in (*graph.inputs, *graph.initializers.values())}
    for graph, imports in graphs:
        for node in graph:
            called = model.functions.get(node.op_identifier())
            if called is not None:
                reason = _misfit_call(node, called)
            else:
                reason = _misfit(node, node.version or imports.get(node.domain, 0))
            if reason:
                raise InvalidModelError(f"node {node.name!r} ({node.op_type}) {reason}")
            for value in node.inputs:
                if value is not None and value.producer() is None and value not in given:
                    raise InvalidModelError(
                        f"node {node.name!r} ({node.op_type}) reads {value.name!r}, which is {_NOBODY}"
                    )
        for value in graph.outputs:
            if value.producer() is None and value not in given:
                raise InvalidModelError(f"output {value.name!r} is {_NOBODY}")


def _check_version(graph: ir.Graph, imports: Mapping[str, int]) -> None:
    """See that the version of ONNX's own operators is said, where there are some, and known."""
    newest = onnx.defs.onnx_opset_version()
    for domain in ("", "ai.onnx"):
        version = imports.get(domain)
        if version is not None and version < 1:
            raise InvalidModelError(f"there is no version {version} of ONNX's operators")
        if version is not None and version > newest:
            raise NewerModelError("opset", version, newest)
    if "" in imports or "ai.onnx" in imports:
        return
    for node in graph.all_nodes():
        if node.domain in ("", "ai.onnx") and not node.version:
            raise InvalidModelError(
                f"it does not say of which opset its operators are, {node.name!r} ({node.op_type}) for one; "
                "it may have been cut off at its end"
            )


def _misfit(node: ir.Node, version: int) -> str:
    """Return why a node does not match its operator's schema; empty if it does, or the operator is unknown."""
    domain = "" if node.domain == "ai.onnx" else node.domain
    if not onnx.defs.has(node.op_type, version, domain):
        return ""
    schema = onnx.defs.get_schema(node.op_type, version, domain)
    if schema.deprecated:
        return ""
    if not schema.min_input <= len(node.inputs) <= schema.max_input:
        return f"has {len(node.inputs)} inputs, {_between(schema.min_input, schema.max_input)} are possible"
    if not schema.min_output <= len(node.outputs) <= schema.max_output:
        return f"has {len(node.outputs)} outputs, {_between(schema.min_output, schema.max_output)} are possible"
    for name, wanted in schema.attributes.items():
        given = node.attributes.get(name)
        if given is None and wanted.required:
            return f"has no attribute {name!r}, which it needs"
        if given is not None and int(given.type) != wanted.type.value:
            kind = ir.AttributeType(wanted.type.value).name
            return f"has an attribute {name!r} of type {given.type.name}, not {kind}"
        if given is not None and given.type == ir.AttributeType.STRING and isinstance(given.value, bytes):
            return f"has an attribute {name!r} that is no text"
    return ""


def _misfit_call(node: ir.Node, function: ir.Function) -> str:
    """Return why a node cannot call a function of the model; empty if it can.

    Trailing inputs and outputs may be omitted.
    """
    for what, given, known in (
        ("inputs", node.inputs, function.inputs),
        ("outputs", node.outputs, function.outputs),
    ):
        if len(given) > len(known):
            return f"has {len(given)} {what}, the function it calls has {len(known)}"
    return ""


def _between(least: int, most: int) -> str:
    return str(least) if least == most else f"{least} to {most}"


_NOBODY = "no input, no weight and no output of a node"


def large_weights(model: ir.Model) -> dict[str, ir.Value]:
    """Return the main graph's initializers that hold weights and do not determine shapes, by name."""
    return {
        name: value
        for name, value in model.graph.initializers.items()
        if value.const_value is not None and value.const_value.size > _PLACEHOLDER_ELEMENTS
    }


def serialized_without(model: ir.Model, weights: dict[str, ir.Value]) -> onnx.ModelProto:
    """Serialize a model with some initializers turned into typed inputs.

    They follow the model's own inputs in the order given.
    """
    copy = model.clone()
    for name in weights:
        value = copy.graph.initializers.pop(name)
        tensor = value.const_value
        assert tensor is not None
        value.shape, value.dtype = ir.Shape(tensor.shape.numpy()), tensor.dtype
        value.const_value = None
        copy.graph.inputs.append(value)
    bring_inside(copy, up_to=math.inf)
    return ir.serde.serialize_model(copy)
