"""Find the implementation of one standard operator: a kernel of this package, or ONNX's own.

ONNX's implementations are the authority. A kernel of `collage.reference.kernels` replaces one only where
ONNX's own loops over pixels in Python, copies what it need not, takes memory that grows with attributes, or errs. It is
tested against that.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import RuntimeContextError
from onnx.reference.ops import load_op

from collage.reference.kernels import find_kernel

Values = Sequence[Any]
Operator = Callable[[Values], tuple[Any, ...]]

LOW_PRECISION = frozenset(
    np.dtype(each)
    for each in (
        np.float16,
        ml_dtypes.bfloat16,
        ml_dtypes.float8_e4m3fn,
        ml_dtypes.float8_e4m3fnuz,
        ml_dtypes.float8_e5m2,
        ml_dtypes.float8_e5m2fnuz,
    )
)

_KEEPS_PRECISION = frozenset(
    {
        "BitCast",
        "Cast",
        "CastLike",
        "DequantizeLinear",
        "DynamicQuantizeLinear",
        "QuantizeLinear",
        "Range",
    }
)
"""Operators whose result depends on the exact type of their inputs, not only on the values."""


def standard_operator(node: onnx.NodeProto, version: int, inputs: Values) -> Operator:
    """Find what computes a node of the default domain.

    Args:
        node: The node, attributes resolved, without sub-graphs.
        version: The opset version that gives it its meaning.
        inputs: The values it will get; some functions of the standard depend on their types.

    Raises:
        Exception: Whatever ONNX raises where it has no implementation.
    """
    kernel = find_kernel(node.op_type, len(node.output))
    if kernel is None:
        compute = _onnx_operator(node, version, inputs)
    else:
        fast = functools.partial(kernel, attributes=attribute_values(node, version))
        own = functools.partial(_onnx_operator, node, version)

        def compute(values: Values) -> tuple[Any, ...]:
            result = fast(values)
            return own(values)(values) if result is NotImplemented else result

    if node.op_type in _KEEPS_PRECISION:
        return compute
    return _in_float32(compute, _same_type(node, version))


def attribute_values(node: onnx.NodeProto, version: int) -> dict[str, Any]:
    """Return a node's attributes as Python values, the standard's defaults included."""
    schema = onnx.defs.get_schema(node.op_type, version, node.domain)
    attributes = _defaults(schema) | {attribute.name: attribute for attribute in node.attribute}
    return {name: _decoded(onnx.helper.get_attribute_value(attribute)) for name, attribute in attributes.items()}


def _defaults(schema: onnx.defs.OpSchema) -> dict[str, onnx.AttributeProto]:
    return {
        name: attribute.default_value
        for name, attribute in schema.attributes.items()
        if attribute.default_value.type != onnx.AttributeProto.UNDEFINED
    }


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return [_decoded(each) for each in value]
    return value.decode() if isinstance(value, bytes) else value


def schema_function(
    node: onnx.NodeProto, version: int, inputs: Values
) -> tuple[ir.Function, dict[str, ir.Attr]] | None:
    """Return the body the standard gives for an operator ONNX does not implement, and its defaults."""
    schema = onnx.defs.get_schema(node.op_type, version, node.domain)
    if schema.has_function:
        body = schema.function_body
    elif schema.has_context_dependent_function:
        types = [_type_of(value).SerializeToString() for value in inputs]
        body = onnx.FunctionProto()
        body.ParseFromString(schema.get_context_dependent_function(node.SerializeToString(), types))
    else:
        return None
    defaults = {name: ir.serde.deserialize_attribute(attribute) for name, attribute in _defaults(schema).items()}
    return ir.serde.deserialize_function(body), defaults


def is_implemented(op_type: str, version: int) -> bool:
    """Return whether ONNX implements an operator itself, not only as a function of other operators."""
    if find_kernel(op_type, 1) is not None:
        return True
    try:
        load_op("", op_type, max(version, _SINCE.get(op_type, 1)), evaluator_cls=_NoExpansion)
    except (RuntimeContextError, NotImplementedError, _ExpansionError):
        return False
    return True


OTHER_DOMAINS: Mapping[str, str] = {
    "ai.onnx.ml": "onnx.reference.ops.aionnxml",
    "ai.onnx.preview": "onnx.reference.ops.aionnx_preview",
    "ai.onnx.preview.training": "onnx.reference.ops.aionnx_preview_training",
}
"""ONNX's domains besides the default one, with the module that implements their operators."""


def other_operator(node: onnx.NodeProto, version: int, opsets: Mapping[str, int]) -> Operator:
    """Find ONNX's implementation of a node of one of `OTHER_DOMAINS`.

    Args:
        node: The node, attributes resolved.
        version: The opset version that gives it its meaning.
        opsets: Version of each domain: bodies of such a node are of other domains.
    """
    load = importlib.import_module(OTHER_DOMAINS[node.domain]).load_op
    parameters = {**_run_parameters(node, version), "opsets": {**opsets, node.domain: version}}
    run = load(node.domain, node.op_type, version)(node, parameters)
    return lambda values: tuple(map(strings_as_objects, run.run(*values)))


_SINCE = {"DequantizeLinear": 19, "QuantizeLinear": 19}
"""First version that ONNX implements; it subsumes the definitions of earlier ones."""


def _onnx_operator(node: onnx.NodeProto, version: int, inputs: Values) -> Operator:
    version = max(version, _SINCE.get(node.op_type, 1))
    implementation = load_op("", node.op_type, version, evaluator_cls=ReferenceEvaluator)
    run = implementation(node, _run_parameters(node, version))
    return lambda values: tuple(map(strings_as_objects, run.run(*values)))


def strings_as_objects(value: Any) -> Any:
    """Convert fixed-width NumPy strings to objects; ONNX's kernels treat the two as different types."""
    return as_text(value) if isinstance(value, np.ndarray) and value.dtype.kind in "US" else value


def as_text(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return an array of texts or bytes as objects, each of them text."""
    texts = [item.decode() if isinstance(item, bytes) else str(item) for item in array.ravel()]
    return np.array(texts, object).reshape(array.shape)


def _run_parameters(node: onnx.NodeProto, version: int) -> dict[str, Any]:
    return {
        "log": lambda pattern, *args: None,
        "opsets": {node.domain: version},
        "verbose": 0,
        "new_ops": {},
        "existing_functions": {},
        "evaluator_cls": ReferenceEvaluator,
    }


class _ExpansionError(Exception):
    pass


class _NoExpansion:
    """Stands in for an evaluator to detect whether one would be needed."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        raise _ExpansionError


_TYPED_LIKE = {("LinearAttention", 1): 0}
"""Fallback input for an output's type when the input it is tied to is omitted: a state has the query's type."""


def _same_type(node: onnx.NodeProto, version: int) -> Callable[[int], int | None]:
    """Tell for an output which input the standard says it shares its type with."""
    schema = onnx.defs.get_schema(node.op_type, version, node.domain)

    def parameter(formal: Sequence[Any], index: int) -> Any:
        return formal[min(index, len(formal) - 1)]

    def source(output: int) -> int | None:
        wanted = parameter(schema.outputs, output).type_str
        for index, name in enumerate(node.input):
            if name and parameter(schema.inputs, index).type_str == wanted:
                return index
        return _TYPED_LIKE.get((node.op_type, output))

    return source


def _in_float32(compute: Operator, same_type: Callable[[int], int | None]) -> Operator:
    """Compute what is stored in 16 bits or fewer in float32, and round each result once."""

    def computed(values: Values) -> tuple[Any, ...]:
        low = [isinstance(v, np.ndarray) and v.dtype in LOW_PRECISION for v in values]
        if not any(low):
            return compute(values)
        wide = [v.astype(np.float32) if narrow else v for v, narrow in zip(values, low, strict=True)]
        with np.errstate(over="ignore"):  # rounding to infinity is what the type means
            return tuple(_rounded(result, values, same_type(index)) for index, result in enumerate(compute(wide)))

    return computed


def _rounded(result: Any, inputs: Values, source: int | None) -> Any:
    if source is None or not isinstance(result, np.ndarray) or result.dtype != np.float32:
        return result
    like = inputs[source]
    if isinstance(like, np.ndarray) and like.dtype in LOW_PRECISION:
        return result.astype(like.dtype)
    return result


def _type_of(value: Any) -> onnx.TypeProto:
    if isinstance(value, np.ndarray):
        return onnx.helper.make_tensor_type_proto(onnx.helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
    return onnx.TypeProto()


def resolve_references(node: onnx.NodeProto, attributes: Mapping[str, ir.Attr]) -> None:
    """Replace attributes that name a parameter of the enclosing function by the argument given."""
    kept = []
    for attribute in node.attribute:
        if not attribute.ref_attr_name:
            kept.append(attribute)
        elif (argument := attributes.get(attribute.ref_attr_name)) is not None:
            proto = ir.serde.serialize_attribute(argument)
            proto.name = attribute.name
            kept.append(proto)
    del node.attribute[:]
    node.attribute.extend(kept)
