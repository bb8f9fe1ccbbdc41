"""Replace groups of a model's nodes by calls of functions marked as one kernel each."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import onnx_ir

from collage_core.fusion.kernel import quantise_body
from collage_core.fusion.sub_graph import SubGraph
from collage_core.ir.graph.canonical import CanonicalForm, Composite, canonical_form
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.extract import COLLAGE_DOMAIN, MIN_IR_VERSION, copied_graph
from collage_core.ir.graph.masks import iterate_bits
from collage_core.ir.graph.metadata_keys import COMPILER_METADATA, COMPOSITE_METADATA, PRIMITIVE_METADATA
from collage_core.ir.operators.value_bounds import BOUND_METADATA
from collage_core.ir.values.content import tensor_content_hash
from collage_core.ir.values.tensor_spec import ValueKind

TARGET_METADATA = "collage.target"
SYMBOL_METADATA = "collage.global_symbol"
NODES_METADATA = "collage.nodes"
"""Metadata key of a call: names of the nodes it replaces, as a JSON list, in the order of the function's nodes.

Calls of one function replace different nodes, and the function's own nodes can have the names of one of them only.
"""
INT8_METADATA = "collage.int8"
"""Metadata key of a function in which core quantised products: its scales are Constant nodes."""
PARTS_METADATA = "collage.composites"
"""Metadata key of a function: its labelled parts, as JSON, each with label, places of its nodes in the body, attributes
and the parts inside it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Properties of a group besides its nodes.

    Attributes:
        toolchain: Toolchain that is to run it; empty if undecided.
        target: Name of that toolchain's target; empty if undecided.
        bind_constants: Whether constants are inside the function; otherwise they are its arguments, so that
            repeated structures share one function.
    """

    toolchain: str = ""
    target: str = ""
    bind_constants: bool = False


class MarkedFunctions:
    """Functions marked as kernels, one for all equal groups.

    Args:
        graph: The graph that contains the groups.
        taken: Existing function names in the domain `collage`.
    """

    def __init__(self, graph: DataflowGraph, taken: Collection[str] = ()) -> None:
        self._graph = graph
        self._taken = set(taken)
        self._functions: dict[tuple[object, ...], onnx_ir.Function] = {}

    def all(self) -> tuple[onnx_ir.Function, ...]:
        """Return every function made so far."""
        return tuple(self._functions.values())

    def function(self, sub_graph: SubGraph, form: CanonicalForm, mark: Mark) -> onnx_ir.Function:
        """Return the function of a group, reusing an earlier one if it is identical."""
        bound: tuple[str, ...] = ()
        if mark.bind_constants:
            bound = tuple(tensor_content_hash(v.const_value) for v in form.constants if v.const_value is not None)
        weights: tuple[str, ...] = ()
        if sub_graph.int8:  # scales are inside the function
            weights = tuple(tensor_content_hash(v.const_value) for v in form.constants if v.const_value is not None)
        key = (sub_graph.structural_hash, sub_graph.form, form.text, mark, bound, weights)
        known = self._functions.get(key)
        if known is None:
            known = self._functions[key] = self._made(sub_graph, form, mark)
        return known

    def _made(self, sub_graph: SubGraph, form: CanonicalForm, mark: Mark) -> onnx_ir.Function:
        symbol = self._symbol(f"{mark.target or mark.toolchain or 'fused'}_{sub_graph.structural_hash[:16]}")
        body = copied_graph(self._graph, form, name=symbol, constants_are_inputs=not mark.bind_constants)
        quantise_body(body, sub_graph, constants_are_nodes=True)
        if mark.bind_constants:
            _bind(body)
        function = onnx_ir.Function(COLLAGE_DOMAIN, symbol, graph=body, attributes=())
        function.metadata_props.update(
            {
                PRIMITIVE_METADATA: "1",
                COMPILER_METADATA: mark.toolchain,
                TARGET_METADATA: mark.target,
                COMPOSITE_METADATA: sub_graph.label,
                SYMBOL_METADATA: symbol,
            }
        )
        for name, value in sub_graph.attributes:
            function.metadata_props[f"{COMPOSITE_METADATA}.{name}"] = value
        if sub_graph.int8:
            function.metadata_props[INT8_METADATA] = "1"
        if sub_graph.composites:
            position = {index: place for place, index in enumerate(form.order)}
            function.metadata_props[PARTS_METADATA] = json.dumps(_described(sub_graph.composites, position))
        return function

    def _symbol(self, wanted: str) -> str:
        symbol = re.sub(r"\W+", "_", wanted, flags=re.ASCII)
        symbol = base = symbol if not symbol[0].isdigit() else f"_{symbol}"
        number = 0
        while symbol in self._taken:
            number += 1
            symbol = f"{base}_{number}"
        self._taken.add(symbol)
        return symbol


def mark_groups(graph: DataflowGraph, groups: Sequence[tuple[SubGraph, Mark]]) -> bool:
    """Rewrite the graph's model in place: replace each group by a call of a function marked as one kernel.

    Everything else is unchanged. The call has the name of the group's last node, and its metadata lists the nodes
    it replaces. Inlining the functions gives the model back, up to names and order. The index is invalid
    afterwards.

    Args:
        graph: The index of the model to rewrite.
        groups: Disjoint groups that can run one after the other, together with the remaining nodes. Views occur
            only inside groups, never at their border.

    Returns:
        Whether anything changed.
    """
    model = graph.model
    taken = [function.name for function in model.functions.values() if function.domain == COLLAGE_DOMAIN]
    functions = MarkedFunctions(graph, taken)
    forms = [canonical_form(graph, sub_graph.nodes, sub_graph.composites) for sub_graph, _ in groups]
    made = [functions.function(s, form, mark) for (s, mark), form in zip(groups, forms, strict=True)]
    bounds = {value: graph.spec(value) for form in forms for value in form.outputs}
    current: dict[onnx_ir.Value, onnx_ir.Value] = {}
    for (sub_graph, mark), form, function in zip(groups, forms, made, strict=True):
        arguments = form.inputs if mark.bind_constants else (*form.inputs, *form.constants)
        call = onnx_ir.Node(
            COLLAGE_DOMAIN,
            function.name,
            [current.get(value, value) for value in arguments],
            num_outputs=len(form.outputs),
            name=sub_graph.names[-1],
        )
        call.metadata_props[NODES_METADATA] = json.dumps([graph.names[index] for index in form.order])
        for old, new in zip(form.outputs, call.outputs, strict=True):
            new.metadata_props.update(old.metadata_props)
            if bounds[old].kind in (ValueKind.SIZED, ValueKind.BOUNDED):
                new.metadata_props[BOUND_METADATA] = json.dumps(bounds[old].bound)
        nodes = [graph.nodes[index] for index in iterate_bits(sub_graph.nodes)]
        onnx_ir.convenience.replace_nodes_and_values(
            model.graph, nodes[-1], nodes, [call], list(form.outputs), list(call.outputs)
        )
        current.update(zip(form.outputs, call.outputs, strict=True))
    if not groups:
        return False
    model.graph.sort()
    for function in functions.all():
        model.functions[function.identifier()] = function
    model.graph.opset_imports.setdefault(COLLAGE_DOMAIN, 1)
    model.ir_version = max(model.ir_version or 0, MIN_IR_VERSION)
    _drop_unread(model, [value for form in forms for value in form.constants])
    return True


def give_call(graph: DataflowGraph, index: int, mark: Mark) -> bool:
    """Assign a marked function without an owner to a toolchain, for all its calls.

    Returns:
        Whether the function had no owner.
    """
    function = graph.model.functions[graph.nodes[index].op_identifier()]
    if function.metadata_props.get(COMPILER_METADATA):
        return False
    function.metadata_props.update({COMPILER_METADATA: mark.toolchain, TARGET_METADATA: mark.target})
    return True


def _described(parts: Sequence[Composite], position: Mapping[int, int]) -> list[list[Any]]:
    return [
        [
            part.label,
            sorted(position[index] for index in iterate_bits(part.nodes)),
            list(part.attributes),
            _described(part.parts, position),
        ]
        for part in parts
    ]


def _bind(body: onnx_ir.Graph) -> None:
    """Turn the constants of a body into Constant nodes, because ONNX functions have no initializers."""
    for value in list(body.initializers.values()):
        if value.const_value is None:
            continue
        tensor = onnx_ir.AttrTensor("value", value.const_value)
        node = onnx_ir.Node("", "Constant", (), [tensor], name=f"constant_{value.name}")
        constant = node.outputs[0]
        constant.name, constant.type, constant.shape = value.name, value.type, value.shape
        value.replace_all_uses_with(constant)
        body.initializers.pop(str(value.name))
        body.insert_before(body[0], node)


def _drop_unread(model: onnx_ir.Model, constants: Sequence[onnx_ir.Value]) -> None:
    for value in constants:
        if not value.uses() and not value.is_graph_output() and not value.is_graph_input() and value.name:
            model.graph.initializers.pop(value.name, None)
