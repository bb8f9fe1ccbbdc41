"""The hooks of the toolchain `example`: a library of single operators. Here NumPy stands for the library."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx_ir

from collage_core.contract import (
    Artifact,
    BoundCall,
    Buffer,
    Host,
    Joins,
    Kernel,
    KernelFunction,
    RunContext,
    Supported,
    Target,
    Unsupported,
    ValueKind,
)
from collage_core.hookspecs import hookimpl
from collage_core.patterns import NodeContext, PatternTable

Array = np.ndarray[Any, Any]
KERNEL = "kernel.json"


def relu(x: Array, out: Array) -> None:
    """Compute Relu."""
    np.maximum(x, np.float32(0), out=out)


OPERATORS: dict[str, Callable[..., Any]] = {"Add": np.add, "Mul": np.multiply, "Relu": relu}
"""What computes each operator, into memory that it is given."""


def takes(node: NodeContext) -> Supported | Unsupported:
    """Refuse with a reason: users read it in `collage inspect`."""
    for spec in (*node.inputs, *node.outputs):
        if spec is None or spec.kind is not ValueKind.PLANNED or spec.dtype != onnx_ir.DataType.FLOAT:
            return Unsupported("runs float32 tensors of known shapes only")
    return Supported()


class ExampleKernel:
    """A call of the library.

    Args:
        operator: Type of the operator.
        operands: Position of each operand among the inputs, or a weight.
    """

    def __init__(self, operator: str, operands: Sequence[int | Array]) -> None:
        self._compute = OPERATORS[operator]
        self._operands = operands

    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], workspace: Buffer | None) -> BoundCall:
        """Return a call that reads the inputs and writes the outputs; see `collage_core.contract.Kernel`."""
        operands = [inputs[each].array if isinstance(each, int) else each for each in self._operands]
        out = outputs[0].array

        def call() -> None:
            self._compute(*operands, out=out)

        return call


class ExamplePlugin:
    """Answers Collage's hooks."""

    @hookimpl
    def collage_targets(self, host: Host) -> Sequence[Target] | Unsupported:
        """Return what this machine offers, or why nothing. Measurements belong to the fingerprint."""
        return [Target(toolchain="example", fingerprint=f"numpy {np.__version__}", joins=Joins.NONE)]

    @hookimpl
    def collage_register_predicates(self, table: PatternTable, target: Target) -> None:
        """Register each operator; groups that the library has one kernel for are `collage_register_patterns`."""
        for operator in OPERATORS:
            table.predicate(operator, takes)

    @hookimpl
    def collage_lower(self, function: KernelFunction) -> Iterator[Artifact]:
        """Yield bytes that are loaded in another process; weights are named by their hash, not among them."""
        graph = function.model.graph
        [node] = graph
        positions: dict[object, int] = {value: position for position, value in enumerate(graph.inputs)}
        operands: list[int | str] = [
            positions[value] if value in positions else function.constants[str(value.name)]
            for value in node.inputs
            if value is not None
        ]
        facts = {"operator": node.op_type, "operands": operands}
        weights = {each: each for each in operands if isinstance(each, str)}
        yield Artifact(files={KERNEL: json.dumps(facts).encode()}, constants=weights)

    @hookimpl
    def collage_load(self, artifact: Artifact, run: RunContext) -> Kernel:
        """Load an artifact, with its weights as read-only arrays."""
        facts = json.loads(artifact.files[KERNEL])
        operands = [run.constants[each] if isinstance(each, str) else each for each in facts["operands"]]
        return ExampleKernel(facts["operator"], operands)


plugin = ExamplePlugin()
