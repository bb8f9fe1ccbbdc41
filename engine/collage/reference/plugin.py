"""The built-in toolchain `reference`: ONNX's own operators, slow and covering almost everything.

It takes part in a search only when requested by name, so that an operator without any other kernel does not block a
model.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir

from collage.reference.evaluator import evaluate
from collage.reference.operators import OTHER_DOMAINS
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
from collage_core.errors import CollageError, KernelError
from collage_core.hookspecs import hookimpl
from collage_core.ir.io.model_io import model_from_bytes, model_to_bytes
from collage_core.patterns import NodeContext, PatternTable

_MODEL = "model.onnx"
_DOMAINS = frozenset({"", "ai.onnx", *OTHER_DOMAINS})


def _takes(node: NodeContext) -> Supported | Unsupported:
    if node.domain not in _DOMAINS:
        return Unsupported(f"ONNX's evaluator does not know the domain {node.domain!r}")
    if node.domain == "" and node.version and not onnx.defs.has(node.op_type, node.version, ""):
        return Unsupported(f"ONNX has no operator {node.op_type} in opset {node.version}")
    return Supported()


class ReferencePlugin:
    """Hooks of the toolchain `reference`."""

    @hookimpl
    def collage_targets(self, host: Host) -> Sequence[Target]:
        """Return one target on the CPU, whose kernels are single operators."""
        version = importlib.metadata.version("onnx")
        return [Target(toolchain="reference", fingerprint=f"onnx {version}", joins=Joins.NONE)]

    @hookimpl
    def collage_register_predicates(self, table: PatternTable, target: Target) -> None:
        """Register a predicate for every standard operator."""
        table.predicate("*", _takes)

    @hookimpl
    def collage_lower(self, function: KernelFunction) -> Iterator[Artifact]:
        """Yield the function itself as the artifact."""
        yield Artifact(files={_MODEL: model_to_bytes(function.model)})

    @hookimpl
    def collage_check_data(self) -> Supported:
        """Return that artifacts are data, an ONNX model with all its weights inside."""
        return Supported()

    @hookimpl
    def collage_load(self, artifact: Artifact, run: RunContext) -> Kernel:
        """Parse the model."""
        return ReferenceKernel(model_from_bytes(artifact.files[_MODEL]))


class ReferenceKernel:
    """A kernel that evaluates a model node by node.

    Args:
        model: The kernel function's model.
    """

    def __init__(self, model: onnx_ir.Model) -> None:
        self._model = model
        self._inputs = [str(value.name) for value in model.graph.inputs if not value.is_initializer()]
        self._outputs = [str(value.name) for value in model.graph.outputs]

    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], workspace: Buffer | None) -> BoundCall:
        """See `Kernel.bind`."""
        wanted = frozenset(self._outputs)

        def call() -> None:
            feeds: Mapping[str, Any] = {name: buffer.value for name, buffer in zip(self._inputs, inputs, strict=True)}
            try:
                values = evaluate(self._model, feeds, keep=wanted.__contains__).values
            except CollageError as error:
                raise KernelError(str(error)) from error
            for name, buffer in zip(self._outputs, outputs, strict=True):
                buffer.put(_owned(values[name]))

        return call


def _owned(value: Any) -> Any:
    """Return a copy that shares no memory with the kernel's inputs, as results of Identity or SequenceAt would.

    A foreign buffer keeps the value it is given, and the neighbouring kernels overwrite theirs.
    """
    if isinstance(value, np.ndarray | np.generic):
        return np.array(value, order="C")
    if isinstance(value, list | tuple):
        return [_owned(item) for item in value]
    return value


plugin = ReferencePlugin()
