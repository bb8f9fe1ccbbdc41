"""The values of a model's tensors in one real run: what candidates are run on and compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import Any

import numpy as np
import onnx_ir

from collage.measure.driver.client import Worker
from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.function_codec import FunctionEncoder
from collage.measure.wire.messages import AskEvaluate
from collage.measure.wire.outcomes import BuildSettings
from collage.measure.wire.values import decode_value, encode_value
from collage.measure.wire.wire_values import WireValue
from collage.reference.evaluator import Fallback, evaluate
from collage_core.contract import Host, KernelFunction, Target, Unsupported
from collage_core.errors import EvaluationError
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits
from collage_core.ir.values.content import constant_of


class Capture:
    """Values by name, kept on disk in a blob store and mapped when read.

    Args:
        values: The values.
        store: Where their bytes are.
        unchecked: Reason by name of each node the reference could not compute, so that another toolchain did.
    """

    def __init__(self, values: Mapping[str, WireValue], store: BlobStore, unchecked: Mapping[str, str]) -> None:
        self._values = values
        self._store = store
        self.unchecked = unchecked

    @classmethod
    def take(
        cls,
        graph: DataflowGraph,
        inputs: Mapping[str, Any],
        store: BlobStore,
        *,
        fallback: Fallback | None = None,
        deadline_s: float | None = None,
        keep: Callable[[str], bool] | None = None,
    ) -> Capture:
        """Runs the reference once and keeps what it computes.

        Args:
            graph: The prepared model.
            inputs: A value for each of its inputs.
            store: Where to keep the values.
            fallback: Computes the nodes the reference cannot; see `worker_fallback`.
            deadline_s: Time limit for the whole run.
            keep: Which values to keep, by name; all by default.

        Raises:
            EvaluationError: If a node cannot be computed.
            DeadlineExceededError: If the time limit passes.
        """
        evaluation = evaluate(graph.model, inputs, fallback=fallback, deadline_s=deadline_s, keep=keep)
        values = dict(evaluation.values)
        wire = {}
        while values:  # each is freed as soon as it is on disk
            name, value = values.popitem()
            wire[name] = encode_value(value, store)
        return cls(wire, store, evaluation.unchecked)

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def wire(self, name: str) -> WireValue:
        """A value as it goes to a worker.

        Raises:
            KeyError: If it was not kept.
        """
        return self._values[name]

    def value(self, name: str) -> Any:
        """A value; a tensor is mapped from disk and read-only.

        Raises:
            KeyError: If it was not kept.
        """
        return decode_value(self._values[name], self._store)

    def inputs_of(self, function: KernelFunction) -> tuple[WireValue, ...]:
        """What a kernel function reads, in the order of its inputs."""
        return tuple(self._values[spec.name] for spec in function.inputs)

    def expected_of(self, function: KernelFunction, graph: DataflowGraph, nodes: int) -> tuple[WireValue | None, ...]:
        """What it should give, in the order of its outputs.

        None where that cannot be said, because inside it a random or stateful node has a say.

        Args:
            function: The function.
            graph: The graph it was extracted from.
            nodes: Mask of its nodes.
        """
        chance = random_nodes(graph, nodes)
        free = {value.name for index in iterate_bits(chance) for value in graph.nodes[index].outputs}
        return tuple(None if spec.name in free else self._values[spec.name] for spec in function.outputs)

    def nbytes(self) -> int:
        """Bytes on disk, values that are equal counted once."""
        blobs = {value.blob for value in self._values.values() if value.kind == "tensor"}
        return sum(self._store.path(blob).stat().st_size for blob in blobs)


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
    """Computes, in a toolchain's worker, the nodes the reference cannot.

    Args:
        worker: The toolchain's.
        graph: The model whose nodes they are; its constants stay constants.
        host: This machine.
        store: Blobs shared with the worker.
        threads: CPU threads it may use.
        deadline_s: Time limit for each node.
        target: Which of its targets; by default the first that computes in the model's own dtypes.

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
    """The function of a one-node model all of whose operands are inputs."""
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


def random_nodes(graph: DataflowGraph, nodes: int) -> int:
    """Mask of the nodes among `nodes` whose values a random or stateful one among them has a say in."""
    found = 0
    for index in iterate_bits(nodes):
        if not graph.pure[index] or graph.predecessors[index] & found:
            found |= 1 << index
    return found
