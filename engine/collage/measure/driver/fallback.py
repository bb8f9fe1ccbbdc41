"""Nodes the reference cannot compute, computed in a toolchain's worker."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

import numpy as np
import onnx_ir

from collage.measure.driver.client import Worker
from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.function_codec import FunctionEncoder
from collage.measure.wire.messages import AskEvaluate
from collage.measure.wire.outcomes import BuildSettings
from collage.measure.wire.values import encode_value
from collage.reference import Fallback
from collage_core.contract import Host, KernelFunction, Target, Unsupported
from collage_core.errors import EvaluationError
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.values.content import constant_of


def worker_fallback(
    worker: Worker,
    graph: DataflowGraph,
    host: Host,
    store: BlobStore,
    *,
    threads: int,
    deadline_s: float,
    target: Target | None = None,
) -> Fallback:
    """Create a fallback that computes, in a toolchain's worker, the nodes the reference cannot.

    Args:
        worker: Worker of the toolchain.
        graph: Graph of the model; its constants stay constants.
        host: This machine.
        store: Blobs shared with the worker.
        threads: CPU threads the worker may use.
        deadline_s: Time limit for each node.
        target: Target to use; by default the first that computes in the model's own dtypes.

    Returns:
        A fallback for `Capture.take`; it raises `EvaluationError` where the toolchain fails too.
    """
    encoder = FunctionEncoder(store)
    constants = {str(name) for name, value in graph.model.graph.initializers.items() if constant_of(value) is not None}

    def compute(model: onnx_ir.Model, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        node = model.graph[0]
        chosen = target or _exact_target(worker, host, node)
        function = _as_function(model, inputs, constants)
        answer = worker.evaluate(
            AskEvaluate(
                target=chosen,
                function=encoder.encode(function),
                inputs=tuple(encode_value(inputs[spec.name], store) for spec in function.inputs),
                build=BuildSettings(threads=threads),
                deadline_s=deadline_s,
            )
        )
        if not isinstance(answer, list):
            raise EvaluationError(str(node.name), node.op_type, f"{chosen.name}: {answer.reason}")
        return {spec.name: value for spec, value in zip(function.outputs, answer, strict=True)}

    return compute


def _exact_target(worker: Worker, host: Host, node: onnx_ir.Node) -> Target:
    targets = worker.targets(host)
    if isinstance(targets, Unsupported):
        raise EvaluationError(str(node.name), node.op_type, targets.reason)
    return next((target for target in targets if target.exact), targets[0])


def _as_function(model: onnx_ir.Model, inputs: Mapping[str, Any], constants: Set[str]) -> KernelFunction:
    """Convert a one-node model whose operands are all inputs to a kernel function."""
    for value in [value for value in model.graph.inputs if value.name in constants]:
        model.graph.inputs.remove(value)
        value.const_value = _tensor(inputs[str(value.name)], str(value.name))
        model.graph.register_initializer(value)
    graph = DataflowGraph(model)
    return KernelFunction(
        name="node",
        model=model,
        inputs=tuple(graph.spec(value) for value in model.graph.inputs),
        outputs=tuple(graph.spec(value) for value in model.graph.outputs),
    )


def _tensor(value: Any, name: str) -> onnx_ir.TensorProtocol:
    array = np.asarray(value)
    if array.dtype.kind not in "OUS":
        return onnx_ir.tensor(array, name=name)
    elements = [item if isinstance(item, bytes) else str(item).encode() for item in array.ravel().tolist()]
    return onnx_ir.StringTensor(elements, shape=onnx_ir.Shape(array.shape), name=name)
