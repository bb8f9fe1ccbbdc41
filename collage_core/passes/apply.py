"""Phase 4: a model rewritten so that every chosen kernel is one call."""

from __future__ import annotations

import json
import re

import onnx_ir

from collage_core.fusion.partitioning import Partitioning
from collage_core.fusion.spec import CandidateKernel
from collage_core.ir.canonical import CanonicalForm, Composite, canonical_form
from collage_core.ir.dataflow import COMPILER_METADATA, PRIMITIVE_METADATA, DataflowGraph
from collage_core.ir.extract import COLLAGE_DOMAIN, COMPOSITE_METADATA, MIN_IR_VERSION, copied_graph
from collage_core.ir.index_set import iterate_bits
from collage_core.ir.tensor_spec import ValueKind
from collage_core.ir.value_bounds import BOUND_METADATA

TARGET_METADATA = "collage.target"
SYMBOL_METADATA = "collage.global_symbol"
NODES_METADATA = "collage.nodes"
"""Key of a call's metadata: names of the prepared model's nodes it stands for, as a JSON list."""
PARTS_METADATA = "collage.composites"
"""Key of a function's metadata: its labelled parts, as JSON: label, positions of nodes in the body, attributes."""


def apply_partitioning(partitioning: Partitioning) -> onnx_ir.Model:
    """Rewrites a model once, to calls of one function per distinct kernel and the host nodes between them.

    The result is standard ONNX. Inlining its functions gives back the prepared model up to names and order. The model
    given is left as it is; tensors are shared.

    Args:
        partitioning: Which nodes go together, and to which target.

    Returns:
        A model whose main graph holds calls (domain `collage`, the call site's name `k0000`, `k0001`, ... as node
        name; data inputs first, then weights) and host nodes, in execution order.
    """
    rewriter = _Rewriter(partitioning.graph)
    number = 0
    for step in partitioning.order:
        if isinstance(step, CandidateKernel):
            rewriter.call(step, f"k{number:04d}")
            number += 1
        else:
            rewriter.copy(step)
    return rewriter.finished()


class _Rewriter:
    """Collects the nodes of the new main graph, and the functions they call."""

    def __init__(self, graph: DataflowGraph) -> None:
        self._graph = graph
        self._nodes: list[onnx_ir.Node] = []
        self._values: dict[onnx_ir.Value, onnx_ir.Value] = {}
        self._initializers: list[onnx_ir.Value] = []
        self._functions: dict[tuple[str, str, str, str], onnx_ir.Function] = {}
        self._inputs = [self._typed(value) for value in graph.model.graph.inputs]

    def call(self, kernel: CandidateKernel, site: str) -> None:
        sub_graph = kernel.sub_graph
        form = canonical_form(self._graph, sub_graph.nodes, sub_graph.composites)
        function = self._function(kernel, form)
        node = onnx_ir.Node(
            COLLAGE_DOMAIN,
            function.name,
            [self._value(value) for value in (*form.inputs, *form.constants)],
            outputs=[self._typed(value) for value in form.outputs],
            name=site,
        )
        node.metadata_props[NODES_METADATA] = json.dumps(sub_graph.names)
        self._nodes.append(node)

    def copy(self, index: int) -> None:
        node = self._graph.nodes[index]
        self._nodes.append(
            onnx_ir.Node(
                node.domain,
                node.op_type,
                [None if value is None else self._value(value) for value in node.inputs],
                node.attributes.values(),
                overload=node.overload,
                outputs=[self._typed(value) for value in node.outputs],
                version=node.version,
                name=self._graph.names[index],
                metadata_props=dict(node.metadata_props),
            )
        )

    def finished(self) -> onnx_ir.Model:
        source = self._graph.model
        outputs = [self._value(value) for value in source.graph.outputs]
        graph = onnx_ir.Graph(
            self._inputs,
            outputs,
            nodes=self._nodes,
            initializers=self._initializers,
            doc_string=source.graph.doc_string,
            opset_imports={**source.opset_imports, COLLAGE_DOMAIN: 1},
            name=source.graph.name,
            metadata_props=dict(source.graph.metadata_props),
        )
        return onnx_ir.Model(
            graph,
            ir_version=max(source.ir_version, MIN_IR_VERSION),
            producer_name="collage",
            functions=list(self._functions.values()),
            metadata_props=dict(source.metadata_props),
        )

    def _function(self, kernel: CandidateKernel, form: CanonicalForm) -> onnx_ir.Function:
        sub_graph, target = kernel.sub_graph, kernel.target
        key = (sub_graph.structural_hash, target.name, sub_graph.label, form.text)
        known = self._functions.get(key)
        if known is not None:
            return known
        symbol = re.sub(r"\W+", "_", f"{target.name}_{sub_graph.structural_hash[:16]}", flags=re.ASCII)
        symbol = symbol if not symbol[0].isdigit() else f"_{symbol}"
        body = copied_graph(self._graph, form, name=symbol, constants_are_inputs=True)
        function = onnx_ir.Function(COLLAGE_DOMAIN, symbol, graph=body, attributes=())
        function.metadata_props.update(
            {
                PRIMITIVE_METADATA: "1",
                COMPILER_METADATA: target.toolchain,
                TARGET_METADATA: target.name,
                COMPOSITE_METADATA: sub_graph.label,
                SYMBOL_METADATA: symbol,
            }
        )
        for name, value in sub_graph.attributes:
            function.metadata_props[f"{COMPOSITE_METADATA}.{name}"] = value
        if sub_graph.composites:
            function.metadata_props[PARTS_METADATA] = _parts_json(form, sub_graph.composites)
        self._functions[key] = function
        return function

    def _value(self, value: onnx_ir.Value) -> onnx_ir.Value:
        """The new value of an old one; an initializer becomes one when it is first used."""
        known = self._values.get(value)
        if known is None:
            known = self._typed(value)
            known.const_value = value.const_value
            self._initializers.append(known)
        return known

    def _typed(self, value: onnx_ir.Value) -> onnx_ir.Value:
        new = onnx_ir.Value(
            name=value.name, type=value.type, shape=value.shape.copy() if value.shape is not None else None
        )
        new.metadata_props.update(value.metadata_props)
        if value.name:
            spec = self._graph.spec(value)
            if spec.kind is ValueKind.BOUNDED:
                new.metadata_props[BOUND_METADATA] = json.dumps(spec.bound)
        self._values[value] = new
        return new


def _parts_json(form: CanonicalForm, parts: tuple[Composite, ...]) -> str:
    position = {index: place for place, index in enumerate(form.order)}
    return json.dumps(
        [[part.label, sorted(position[i] for i in iterate_bits(part.nodes)), list(part.attributes)] for part in parts]
    )
