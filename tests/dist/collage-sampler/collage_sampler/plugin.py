"""A toolchain in NumPy that runs Add, Mul and Relu on float32."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

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
)
from collage_core.hookspecs import hookimpl
from collage_core.patterns import NodeContext, PatternTable


def relu(x: np.ndarray[Any, Any], out: np.ndarray[Any, Any]) -> None:
    np.maximum(x, np.float32(0), out=out)


KERNELS: dict[str, Callable[..., Any]] = {"Add": np.add, "Mul": np.multiply, "Relu": relu}


def float32_only(node: NodeContext) -> Supported | Unsupported:
    for spec in node.inputs:
        if spec is None or spec.dtype is None or spec.dtype.name != "FLOAT":
            return Unsupported("runs float32 only")
    return Supported()


class SamplerKernel:
    def __init__(self, operator: str, operands: list[np.ndarray[Any, Any] | int]) -> None:
        self._operator = KERNELS[operator]
        self._operands = operands

    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], workspace: Buffer | None) -> BoundCall:
        operands = [inputs[each].array if isinstance(each, int) else each for each in self._operands]
        out = outputs[0].array

        def call() -> None:
            self._operator(*operands, out=out)

        return call


class Sampler:
    @hookimpl
    def collage_targets(self, host: Host) -> list[Target]:
        return [Target(toolchain="sampler", fingerprint=f"numpy {np.__version__}", joins=Joins.NONE)]

    @hookimpl
    def collage_register_predicates(self, table: PatternTable, target: Target) -> None:
        for operator in KERNELS:
            table.predicate(operator, float32_only)

    @hookimpl
    def collage_lower(self, function: KernelFunction) -> Iterator[Artifact]:
        graph = function.model.graph
        (node,) = graph
        positions: dict[object, int] = {value: position for position, value in enumerate(graph.inputs)}
        operands: list[str | int] = [
            positions[value] if value in positions else function.constants[str(value.name)]
            for value in node.inputs
            if value is not None
        ]
        facts = {"operator": node.op_type, "operands": operands}
        yield Artifact(
            files={"kernel.json": json.dumps(facts).encode()},
            constants={each: each for each in operands if isinstance(each, str)},
        )

    @hookimpl
    def collage_load(self, artifact: Artifact, run: RunContext) -> Kernel:
        facts = json.loads(artifact.files["kernel.json"])
        operands = [run.constants[each] if isinstance(each, str) else each for each in facts["operands"]]
        return SamplerKernel(facts["operator"], operands)


plugin = Sampler()
