"""Capture the values of a model's tensors in one real run, as inputs and expected outputs of candidates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.values import decode_value, encode_value
from collage.measure.wire.wire_values import WireValue
from collage.reference.evaluator import Fallback, evaluate
from collage_core.contract import KernelFunction
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits


class Capture:
    """Values by name, kept on disk in a blob store and mapped when read.

    Args:
        values: The values.
        store: Store that holds their bytes.
        unchecked: Reason for each node that the reference could not compute and another toolchain did, by node name.
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
        """Run the reference once and store the values it computes.

        Args:
            graph: Graph of the prepared model.
            inputs: A value for each of its inputs.
            store: Stores the values.
            fallback: Computes the nodes the reference cannot; see `worker_fallback`.
            deadline_s: Time limit for the whole run.
            keep: Predicate on value names that selects the values to store; all by default.

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
        """Return a value in the form sent to a worker.

        Raises:
            KeyError: If it was not kept.
        """
        return self._values[name]

    def value(self, name: str) -> Any:
        """Return a value; a tensor is a read-only view of a memory-mapped file.

        Raises:
            KeyError: If it was not kept.
        """
        return decode_value(self._values[name], self._store)

    def inputs_of(self, function: KernelFunction) -> tuple[WireValue, ...]:
        """Return the input values of a kernel function, in the order of its inputs."""
        return tuple(self._values[spec.name] for spec in function.inputs)

    def expected_of(self, function: KernelFunction, graph: DataflowGraph, nodes: int) -> tuple[WireValue | None, ...]:
        """Return the expected output values of a kernel function, in the order of its outputs.

        None for an output that depends on a random or stateful node inside the function.

        Args:
            function: The kernel function.
            graph: Graph it was extracted from.
            nodes: Mask of its nodes.
        """
        chance = random_nodes(graph, nodes)
        free = {value.name for index in iterate_bits(chance) for value in graph.nodes[index].outputs}
        return tuple(None if spec.name in free else self._values[spec.name] for spec in function.outputs)

    def nbytes(self) -> int:
        """Return the bytes on disk; equal values are counted once."""
        blobs = {value.blob for value in self._values.values() if value.kind == "tensor"}
        return sum(self._store.path(blob).stat().st_size for blob in blobs)


def random_nodes(graph: DataflowGraph, nodes: int) -> int:
    """Return the mask of the random or stateful nodes among `nodes` and of the nodes that depend on them."""
    found = 0
    for index in iterate_bits(nodes):
        if not graph.pure[index] or graph.predecessors[index] & found:
            found |= 1 << index
    return found
