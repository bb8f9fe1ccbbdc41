"""Extract a candidate as a separate model."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import onnx_ir

from collage_core.ir.graph.canonical import CanonicalForm, Composite, canonical_form
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits
from collage_core.ir.graph.metadata_keys import COMPOSITE_METADATA
from collage_core.ir.values.tensor_spec import TensorSpec

COLLAGE_DOMAIN = "collage"
MIN_IR_VERSION = 10
"""First IR version whose functions keep metadata and types of inner values."""


@dataclasses.dataclass(frozen=True, slots=True)
class Extraction:
    """A candidate as a separate model.

    Attributes:
        model: Nodes in canonical order; constants are initializers that share the original tensors.
        inputs: Specs of the model's inputs, in order.
        outputs: Specs of its outputs, in order.
        input_values: The original input values.
        output_values: The original output values.
        constant_values: The original constants, in the order of the model's initializers.
    """

    model: onnx_ir.Model
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    input_values: tuple[onnx_ir.Value, ...]
    output_values: tuple[onnx_ir.Value, ...]
    constant_values: tuple[onnx_ir.Value, ...]


def extract(graph: DataflowGraph, nodes: int, *, name: str, composites: Sequence[Composite] = ()) -> Extraction:
    """Copy a candidate out of its graph into a model.

    Equal candidates (by `structural_hash`) give equal models up to names and weights. Tensors are shared, not copied.
    Calls to functions of the model are replaced by their bodies.

    Args:
        graph: The graph.
        nodes: Mask of the candidate's nodes.
        name: Name of the new graph.
        composites: Labelled parts, which become functions of the new model, as those inside them do.
    """
    return extract_form(graph, canonical_form(graph, nodes, composites), name=name, composites=composites)


def extract_form(
    graph: DataflowGraph, form: CanonicalForm, *, name: str, composites: Sequence[Composite] = ()
) -> Extraction:
    """Extract a candidate whose canonical form is known; see `extract`."""
    body = copied_graph(graph, form, name=name, constants_are_inputs=False)
    model = onnx_ir.Model(body, ir_version=max(graph.model.ir_version, MIN_IR_VERSION), producer_name="collage")
    if composites:
        _Composites(model, graph).call(body, form, (*body.inputs, *body.initializers.values()), composites)
    return Extraction(
        model=model,
        inputs=tuple(graph.spec(value) for value in form.inputs),
        outputs=tuple(graph.spec(value) for value in form.outputs),
        input_values=form.inputs,
        output_values=form.outputs,
        constant_values=form.constants,
    )


def copied_graph(graph: DataflowGraph, form: CanonicalForm, *, name: str, constants_are_inputs: bool) -> onnx_ir.Graph:
    """Copy the nodes of a candidate into a new graph, with calls inlined.

    Args:
        graph: The graph.
        form: The candidate.
        name: Name of the new graph.
        constants_are_inputs: Whether constants become inputs after the others (a function) or initializers (a
            model).
    """
    view = onnx_ir.GraphView(
        (*form.inputs, *form.constants) if constants_are_inputs else form.inputs,
        form.outputs,
        nodes=[graph.nodes[index] for index in form.order],
        initializers=() if constants_are_inputs else form.constants,
        opset_imports=dict(graph.model.opset_imports),
        name=name,
    )
    copy = view.clone()
    for value in copy.inputs:
        value.const_value = None
    for index, node in zip(form.order, copy, strict=True):
        node.name = graph.names[index]
    _inline_calls(copy, graph.model.functions)
    return copy


def _inline_calls(body: onnx_ir.Graph, functions: Mapping[onnx_ir.OperatorIdentifier, onnx_ir.Function]) -> None:
    """Inline calls to the source model's functions, in place."""
    if not any(node.op_identifier() in functions for node in body.all_nodes()):
        return
    # Imported here because onnx_ir.passes.common loads onnx's compiled extension, and marked functions are rare.
    from onnx_ir.passes.common import InlinePass

    copies = [function.clone() for function in functions.values()]
    InlinePass()(onnx_ir.Model(body, ir_version=MIN_IR_VERSION, functions=copies))


class _Composites:
    """Replaces labelled parts of a copied candidate by calls of functions, and likewise the parts inside them.

    Args:
        model: Receives the functions.
        graph: The graph that the candidate was copied from.
    """

    def __init__(self, model: onnx_ir.Model, graph: DataflowGraph) -> None:
        self._model = model
        self._graph = graph

    def call(
        self,
        body: onnx_ir.Graph,
        form: CanonicalForm,
        given: Sequence[onnx_ir.Value],
        composites: Sequence[Composite],
        prefix: str = "composite",
    ) -> None:
        """Call the parts of one body.

        Args:
            body: The copy.
            form: What was copied.
            given: The copy's values for the form's inputs and constants, in order.
            composites: The parts.
            prefix: Beginning of the functions' names.
        """
        graph = self._graph
        new_nodes = dict(zip(form.order, body, strict=True))
        new_values = dict(zip((*form.inputs, *form.constants), given, strict=True))
        for index, node in new_nodes.items():
            new_values.update(zip(graph.nodes[index].outputs, node.outputs, strict=True))
        order = {index: position for position, index in enumerate(form.order)}
        ranked = sorted(composites, key=lambda part: min(order[index] for index in iterate_bits(part.nodes)))
        for number, part in enumerate(ranked):
            inner = canonical_form(graph, part.nodes)
            function = self._function(part, inner, f"{prefix}_{number}")
            call = onnx_ir.Node(
                COLLAGE_DOMAIN,
                function.name,
                [new_values[value] for value in (*inner.inputs, *inner.constants)],
                outputs=[_like(new_values[value]) for value in inner.outputs],
                name=f"{part.label}_{number}",
            )
            old = [new_nodes[index] for index in iterate_bits(part.nodes)]
            onnx_ir.convenience.replace_nodes_and_values(
                body, old[-1], old, [call], [new_values[value] for value in inner.outputs], call.outputs
            )
            new_values.update(zip(inner.outputs, call.outputs, strict=True))
        body.opset_imports.setdefault(COLLAGE_DOMAIN, 1)
        body.sort()

    def _function(self, part: Composite, form: CanonicalForm, name: str) -> onnx_ir.Function:
        body = copied_graph(self._graph, form, name=name, constants_are_inputs=True)
        if part.parts:
            self.call(body, form, body.inputs, part.parts, name)
        function = onnx_ir.Function(COLLAGE_DOMAIN, name, graph=body, attributes=())
        function.metadata_props[COMPOSITE_METADATA] = part.label
        for key, value in part.attributes:
            function.metadata_props[f"{COMPOSITE_METADATA}.{key}"] = value
        self._model.functions[function.identifier()] = function
        return function


def _like(value: onnx_ir.Value) -> onnx_ir.Value:
    return onnx_ir.Value(name=value.name, type=value.type, shape=value.shape)
