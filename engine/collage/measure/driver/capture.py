"""Capture the values of a model's tensors in one real run, as inputs and expected outputs of candidates."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from typing import Any

import onnx_ir

from collage.measure.models.model_process import ModelProcess
from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.values import decode_value
from collage.measure.wire.wire_values import WireValue
from collage.reference import Evaluation, Fallback
from collage.reference.choices import needed_values
from collage_core.contract import KernelFunction
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits

DEADLINE_S = 3600.0
"""Seconds after which a reference run is taken for one that never ends: a Loop may ask for 2^63 steps."""


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
        model: onnx_ir.Model,
        inputs: Mapping[str, Any],
        store: BlobStore,
        *,
        models: ModelProcess | None = None,
        fallback: Fallback | None = None,
        deadline_s: float = DEADLINE_S,
        keep: Collection[str] | None = None,
        conditioned: bool = True,
    ) -> Capture:
        """Run the reference once, in a process of its own, and store the values it computes.

        Args:
            model: A prepared model.
            inputs: A value for each of its inputs.
            store: Stores the values.
            models: The process; one that ends with this run if None.
            fallback: Computes the nodes the reference cannot; see `worker_fallback`.
            deadline_s: Time limit for the whole run.
            keep: Names of the values to store; all by default.
            conditioned: Whether to find out what rounding does to them.

        Raises:
            EvaluationError: If a node cannot be computed.
            ModelCostError: If the run takes too much memory or time.
        """
        with ModelProcess() if models is None else contextlib.nullcontext(models) as process:
            ran = process.evaluate(
                model, inputs, store, keep=keep, fallback=fallback, deadline_s=deadline_s, conditioned=conditioned
            )
        return cls(ran.values, store, ran.unchecked)

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

    def evaluation(self) -> Evaluation:
        """Return all values, mapped, as the result of an evaluation in this process."""
        conditioning = {name: each.conditioning for name, each in self._values.items() if each.conditioning is not None}
        return Evaluation({name: self.value(name) for name in self._values}, self.unchecked, conditioning)

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

    def behind(self, function: KernelFunction) -> dict[str, WireValue]:
        """Return the values inside a function that its choices are between, by name; see `reference.choices`."""
        given = {spec.name for spec in function.inputs}
        names = needed_values(function.model.graph.outputs) - given
        return {name: self._values[name] for name in names if name in self._values}

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
