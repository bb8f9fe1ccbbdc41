"""Phase 4: rewrite a model so that every chosen kernel is one call."""

from __future__ import annotations

import json

import onnx_ir

from collage_core.fusion.partitioning import Partitioning
from collage_core.fusion.spec import CandidateKernel
from collage_core.ir.graph.canonical import canonical_form
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.extract import COLLAGE_DOMAIN, MIN_IR_VERSION
from collage_core.ir.operators.value_bounds import BOUND_METADATA
from collage_core.ir.values.tensor_spec import ValueKind
from collage_core.passes.call_sites import site_name
from collage_core.passes.marking import NODES_METADATA, Mark, MarkedFunctions


def apply_partitioning(partitioning: Partitioning) -> onnx_ir.Model:
    """Rewrite a model to calls of one function per distinct kernel, with the host nodes between them.

    The result is standard ONNX. Inlining its functions gives back the prepared model up to names and order. The
    input model is unchanged; tensors are shared.

    Args:
        partitioning: Which nodes form a kernel, and on which target.

    Returns:
        A model whose main graph holds calls (domain `collage`, the call site's name `k0000`, `k0001`, ... as node
        name; data inputs first, then weights) and host nodes, in execution order.
    """
    rewriter = _Rewriter(partitioning.graph)
    number = 0
    for step in partitioning.order:
        if isinstance(step, CandidateKernel):
            rewriter.call(step, site_name(number))
            number += 1
        else:
            rewriter.copy(step)
    return rewriter.finished()


class _Rewriter:
    """Collects the nodes of the new main graph and the functions they call."""

    def __init__(self, graph: DataflowGraph) -> None:
        self._graph = graph
        self._nodes: list[onnx_ir.Node] = []
        self._values: dict[onnx_ir.Value, onnx_ir.Value] = {}
        self._initializers: list[onnx_ir.Value] = []
        self._functions = MarkedFunctions(graph)
        self._inputs = [self._typed(value) for value in graph.model.graph.inputs]

    def call(self, kernel: CandidateKernel, site: str) -> None:
        sub_graph, target = kernel.sub_graph, kernel.target
        form = canonical_form(self._graph, sub_graph.nodes, sub_graph.composites)
        function = self._functions.function(sub_graph, form, Mark(toolchain=target.toolchain, target=target.name))
        node = onnx_ir.Node(
            COLLAGE_DOMAIN,
            function.name,
            [self._value(value) for value in (*form.inputs, *form.constants)],
            outputs=[self._typed(value) for value in form.outputs],
            name=site,
        )
        node.metadata_props[NODES_METADATA] = json.dumps([self._graph.names[index] for index in form.order])
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
            functions=self._functions.all(),
            metadata_props=dict(source.metadata_props),
        )

    def _value(self, value: onnx_ir.Value) -> onnx_ir.Value:
        """Return the new value that replaces an old one; initializers are created on first use."""
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
            if spec.kind in (ValueKind.SIZED, ValueKind.BOUNDED):
                new.metadata_props[BOUND_METADATA] = json.dumps(spec.bound)
        self._values[value] = new
        return new
