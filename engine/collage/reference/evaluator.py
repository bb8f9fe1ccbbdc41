"""Evaluate an ONNX model node by node, giving the value of every tensor in it."""

from __future__ import annotations

import copy
import dataclasses
import math
import time
from collections import ChainMap
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import psutil

from collage.reference import control_flow
from collage.reference.affordable import AffordableRun
from collage.reference.conditioning import Conditioning
from collage.reference.operators import (
    OTHER_DOMAINS,
    Operator,
    as_text,
    is_implemented,
    other_operator,
    resolve_references,
    schema_function,
    standard_operator,
    strings_as_objects,
)
from collage_core.errors import DeadlineExceededError, EvaluationError, NodeMemoryError
from collage_core.ir.graph.walk import captured_values

Fallback = Callable[[ir.Model, Mapping[str, Any]], Mapping[str, Any]]
"""Computes a one-node model: named inputs in, named outputs out."""

Scope = MutableMapping[ir.Value, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Evaluation:
    """Result of evaluating a model.

    Attributes:
        values: The requested tensors of the main graph, by name; inputs and outputs included.
        unchecked: Reason for each node the reference could not compute, by node name. Their outputs are the
            fallback's and therefore do not verify it.
        conditioning: What rounding does to each of the tensors, by name; empty if nobody asked.
    """

    values: Mapping[str, Any]
    unchecked: Mapping[str, str]
    conditioning: Mapping[str, Conditioning] = dataclasses.field(default_factory=dict)


class NodeEvaluator:
    """Computes single nodes, including sub-graphs, functions and low-precision types.

    Args:
        opset_imports: Version of each domain.
        functions: The model's own functions.
        deadline: `time.monotonic()` after which no further node is started.

    Examples:
        >>> x = ir.Value(name="x")
        >>> node = ir.Node("", "Neg", [x])
        >>> NodeEvaluator({"": 20}).run(node, {x: np.float32([1, -2])})
        (array([-1.,  2.], dtype=float32),)
    """

    def __init__(
        self,
        opset_imports: Mapping[str, int],
        functions: Mapping[ir.OperatorIdentifier, ir.Function] | None = None,
        deadline: float | None = None,
    ) -> None:
        self._opsets = opset_imports
        self._functions = functions or {}
        self._deadline = deadline
        self._operators: dict[ir.Node, Operator] = {}

    def until(self, deadline: float) -> NodeEvaluator:
        """Return the same with an earlier deadline, by `time.monotonic()`."""
        other = copy.copy(self)
        other._deadline = deadline if self._deadline is None else min(deadline, self._deadline)
        return other

    def run(
        self,
        node: ir.Node,
        scope: Mapping[ir.Value, Any],
        attributes: Mapping[str, ir.Attr] | None = None,
    ) -> tuple[Any, ...]:
        """Compute the outputs of a node.

        Args:
            node: Any node, including If, Loop, Scan and calls of model-local functions.
            scope: Values of its inputs and of everything its sub-graphs capture.
            attributes: Arguments of the enclosing function, for attributes that refer to them.

        Raises:
            TimeoutError: If the deadline has passed.
            Exception: Whatever the implementation raises; NotImplementedError where there is none.
        """
        if self._deadline is not None and time.monotonic() > self._deadline:
            raise TimeoutError
        inputs = [None if value is None else scope[value] for value in node.inputs]
        if (function := self._functions.get(node.op_identifier())) is not None:
            own = _arguments(node, attributes or {})
            return self._call(function, inputs, own, function.opset_imports)
        if node.domain in ("", "ai.onnx"):
            if (run := control_flow.OPERATORS.get(node.op_type)) is not None:
                return run(node, inputs, lambda graph, args: self._graph(graph, args, scope, attributes))
            return self._standard(node, inputs, attributes or {})
        if node.domain in OTHER_DOMAINS:
            return other_operator(_proto(node, attributes or {}), self._version(node), self._opsets)(inputs)
        raise NotImplementedError(f"no implementation for domain {node.domain!r}")

    def _version(self, node: ir.Node) -> int:
        version = self._opsets.get(node.domain, node.version)
        if version is None:
            version = self._opsets["ai.onnx" if node.domain == "" else ""]
        return version

    def _standard(self, node: ir.Node, inputs: Sequence[Any], attributes: Mapping[str, ir.Attr]) -> tuple[Any, ...]:
        operator = self._operators.get(node)
        if operator is not None:
            return operator(inputs)
        version = self._version(node)
        if node.op_type == "Constant":
            return (_constant(_proto(node, attributes)),)
        proto = _proto(node, attributes)
        proto.domain = ""
        if not is_implemented(node.op_type, version):
            expansion = schema_function(proto, version, inputs)
            if expansion is None:
                raise NotImplementedError(f"onnx implements no {node.op_type}")
            function, defaults = expansion
            own = {**defaults, **_arguments(node, attributes)}
            imports = function.opset_imports or {"": version}
            return self._call(function, inputs, own, imports)
        operator = standard_operator(proto, version, inputs)
        if not any(attribute.is_ref() for attribute in node.attributes.values()):
            self._operators[node] = operator
        return operator(inputs)

    def _call(
        self,
        function: ir.Function,
        inputs: Sequence[Any],
        attributes: Mapping[str, ir.Attr],
        opset_imports: Mapping[str, int],
    ) -> tuple[Any, ...]:
        defaults = {a.name: a for a in function.attributes.values() if a.value is not None}
        inner = NodeEvaluator({**self._opsets, **opset_imports}, self._functions, self._deadline)
        return inner._graph(function.graph, inputs, {}, {**defaults, **attributes})

    def _graph(
        self,
        graph: ir.Graph,
        inputs: Sequence[Any],
        outer: Mapping[ir.Value, Any],
        attributes: Mapping[str, ir.Attr] | None,
    ) -> tuple[Any, ...]:
        scope: Scope = ChainMap({}, outer)  # type: ignore[arg-type]  # only the first map is written
        for value in graph.inputs:
            scope[value] = None  # trailing optional arguments of a function may be left out
        scope.update(zip(graph.inputs, inputs, strict=False))
        for value in graph.initializers.values():
            if value not in graph.inputs:
                scope[value] = constant_value(value)
        for node in graph:
            scope.update(zip(node.outputs, self.run(node, scope, attributes), strict=False))
        return tuple(scope[value] for value in graph.outputs)


def evaluate(
    model: ir.Model,
    inputs: Mapping[str, Any],
    *,
    fallback: Fallback | None = None,
    deadline_s: float | None = None,
    keep: Callable[[str], bool] | None = None,
    kept_as: Callable[[Any], Any] | None = None,
    memory_bytes: int | None = None,
    begun: Callable[[ir.Node], None] = lambda node: None,
    conditioned: bool = False,
) -> Evaluation:
    """Compute the tensors of a model's main graph.

    Args:
        model: Any model; nodes topologically sorted.
        inputs: A value for each graph input that is no initializer.
        fallback: Computes the nodes that ONNX's evaluator cannot.
        deadline_s: Time limit for the whole evaluation.
        keep: Which tensors to return; all by default. Others are freed after their last use.
        kept_as: Converts each returned tensor as soon as it is known, so that the tensor itself can be freed.
        memory_bytes: Most memory for the outputs of a node; the machine's if None.
        begun: Told of each node before it is computed.
        conditioned: Whether to find out what rounding does to them, as far as time and memory allow; see
            `conditioning`.

    Raises:
        EvaluationError: If a node cannot be computed and there is no fallback, or that fails too, or it needs too much
            memory.
        DeadlineExceededError: If the time limit passes; checked between nodes.
    """
    deadline = None if deadline_s is None else time.monotonic() + deadline_s
    evaluator = NodeEvaluator(model.opset_imports, model.functions, deadline)
    graph = model.graph
    scope = {value: constant_value(value) for value in graph.initializers.values()}
    for value in graph.inputs:
        if (name := str(value.name)) in inputs:
            scope[value] = strings_as_objects(inputs[name])
        elif value not in scope:
            raise EvaluationError(str(value.name), "graph input", "no value is given for it")
    last_use = _last_uses(graph)
    values: dict[str, Any] = {}
    unchecked: dict[str, str] = {}
    perturbed = AffordableRun(graph, evaluator, deadline_s) if conditioned else None
    conditioning: dict[str, Conditioning] = {}

    def settle(value: ir.Value) -> None:
        if value.name and value.name not in values and (keep is None or keep(value.name)):
            values[value.name] = scope[value] if kept_as is None else kept_as(scope[value])
            found = None if perturbed is None else perturbed.conditioning(value, scope[value])
            if found is not None:
                conditioning[value.name] = found

    for value in graph.inputs:
        settle(value)
    memory = psutil.virtual_memory().total if memory_bytes is None else memory_bytes
    for node in graph:
        check_size(node, memory)
        begun(node)
        began = time.monotonic()
        try:
            results = _run(evaluator, node, scope, perturbed)
        except TimeoutError as error:
            raise DeadlineExceededError(f"at node {node.name!r} ({node.op_type})", deadline_s or 0.0) from error
        except MemoryError as error:  # a toolchain would only need as much
            raise NodeMemoryError(str(node.name), node.op_type, str(error)) from error
        except Exception as error:
            reason = _reason(error)
            results = _fall_back(fallback, model, node, scope, reason, error)
            unchecked[str(node.name)] = reason
        if perturbed is not None:
            perturbed.follow(node, scope, results, time.monotonic() - began)
        for value, result in zip(node.outputs, results, strict=False):
            scope[value] = result
            settle(value)
        for value in last_use.get(node, ()):
            scope.pop(value, None)
            if perturbed is not None:
                perturbed.forget(value)
    for value in graph.outputs:
        if value in scope:
            settle(value)
    return Evaluation(values, unchecked, conditioning)


def _run(
    evaluator: NodeEvaluator, node: ir.Node, scope: Mapping[ir.Value, Any], perturbed: AffordableRun | None
) -> tuple[Any, ...]:
    """Compute a node, though what rounding does is then not known any more."""
    try:
        return evaluator.run(node, scope)
    except MemoryError:
        if perturbed is None or not perturbed.given_up():
            raise
    return evaluator.run(node, scope)  # here the exception has let go of what it refers to


def check_size(node: ir.Node, memory_bytes: int) -> None:
    """Check that the outputs of a node fit into memory, as far as their sizes are known statically.

    Raises:
        NodeMemoryError: If they do not.
    """
    if (size := sum(map(_nbytes, node.outputs))) > memory_bytes:
        raise NodeMemoryError(str(node.name), node.op_type, f"its outputs take {size / 1e9:,.1f} GB")


def _nbytes(value: ir.Value) -> int:
    """Return the size of a tensor in NumPy, in bytes; 0 where it is not known statically."""
    if value.shape is None or value.dtype is None or not value.shape.is_static():
        return 0
    return math.prod(map(int, value.shape.numpy())) * max(1, getattr(value.dtype.numpy(), "itemsize", 1))


def constant_value(value: ir.Value) -> Any:
    """Return an initializer as an array of its declared element type."""
    tensor = value.const_value
    if tensor is None:
        return None
    array = tensor.numpy()
    if tensor.dtype == ir.DataType.STRING:
        return as_text(array)
    # bytes inside a protobuf start anywhere, and NumPy keeps unaligned operands away from BLAS
    return array if array.flags.aligned else array.copy()


def _last_uses(graph: ir.Graph) -> dict[ir.Node, list[ir.Value]]:
    last: dict[ir.Value, ir.Node] = {}
    for node in graph:
        for value in (*node.inputs, *captured_values(node), *node.outputs):
            if value is not None:
                last[value] = node
    for value in graph.outputs:
        last.pop(value, None)
    uses: dict[ir.Node, list[ir.Value]] = {}
    for value, node in last.items():
        uses.setdefault(node, []).append(value)
    return uses


def _fall_back(
    fallback: Fallback | None,
    model: ir.Model,
    node: ir.Node,
    scope: Mapping[ir.Value, Any],
    reason: str,
    error: Exception,
) -> tuple[Any, ...]:
    op_type = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
    if fallback is None:
        raise EvaluationError(str(node.name), op_type, reason) from error
    needed = [v for v in (*node.inputs, *captured_values(node)) if v is not None]
    feeds = {str(value.name): scope[value] for value in needed}
    try:
        outputs = fallback(_node_model(model, node, feeds), feeds)
        return tuple(outputs.get(str(value.name)) for value in node.outputs)
    except Exception as second:
        raise EvaluationError(str(node.name), op_type, f"{reason}; and the fallback: {_reason(second)}") from second


def _node_model(model: ir.Model, node: ir.Node, feeds: Mapping[str, Any]) -> ir.Model:
    inputs = []
    for name, value in feeds.items():
        array = np.asarray(value)
        kind = (
            onnx.TensorProto.STRING if array.dtype.kind in "OUS" else onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        )
        inputs.append(onnx.helper.make_tensor_value_info(name, kind, array.shape))
    outputs = [ir.serde.serialize_value(value) for value in node.outputs if value.name]
    graph = onnx.helper.make_graph([ir.serde.serialize_node(node)], str(node.name) or "node", inputs, outputs)
    proto = onnx.helper.make_model(
        graph,
        ir_version=model.ir_version,
        opset_imports=[onnx.helper.make_opsetid(d, v) for d, v in model.opset_imports.items()],
        functions=[ir.serde.serialize_function(f) for f in model.functions.values()],
    )
    return ir.serde.deserialize_model(proto)


def _proto(node: ir.Node, attributes: Mapping[str, ir.Attr]) -> onnx.NodeProto:
    proto = ir.serde.serialize_node(node)
    if any(attribute.ref_attr_name for attribute in proto.attribute):
        resolve_references(proto, attributes)
    return proto


def _arguments(node: ir.Node, attributes: Mapping[str, ir.Attr]) -> dict[str, ir.Attr]:
    own = {}
    for name, attribute in node.attributes.items():
        if not attribute.is_ref():
            own[name] = attribute
        elif (argument := attributes.get(str(attribute.ref_attr_name))) is not None:
            own[name] = argument
    return own


def _constant(proto: onnx.NodeProto) -> Any:
    [attribute] = proto.attribute
    value = onnx.helper.get_attribute_value(attribute)
    if attribute.name == "value":
        return onnx.numpy_helper.to_array(value)
    if attribute.name in ("value_float", "value_floats"):
        return np.array(value, dtype=np.float32)
    if attribute.name in ("value_int", "value_ints"):
        return np.array(value, dtype=np.int64)
    if attribute.name in ("value_string", "value_strings"):
        strings = [value] if isinstance(value, bytes) else value
        array = np.array([each.decode() for each in strings], dtype=object)
        return array.reshape(()) if isinstance(value, bytes) else array
    raise NotImplementedError(f"Constant with attribute {attribute.name!r}")


def _reason(error: BaseException) -> str:
    cause = error.__cause__ or error  # onnx wraps the exception that says what happened
    text = str(cause).strip().splitlines()
    return f"{type(cause).__name__}: {text[0]}" if text else type(cause).__name__
