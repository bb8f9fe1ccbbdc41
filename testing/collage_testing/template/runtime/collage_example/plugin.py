"""The hooks of the toolchain `example`: a runtime that compiles whole graphs.

Here ONNX's own evaluator stands for the runtime: put yours in the place of `open_model` and `ExampleKernel`.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator, Mapping, Sequence
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
from collage_core.ir.graph.refused import refused_nodes
from collage_core.ir.io.model_io import model_to_bytes
from collage_core.patterns import NodeContext, PatternTable

MODEL = "model.onnx"


def open_model(serialized: bytes) -> Any:
    """Load a model into the library, which is imported here: the search's own process never calls this."""
    import onnx
    from onnx.reference import ReferenceEvaluator

    return ReferenceEvaluator(onnx.load_from_string(serialized))


def refusal(model: onnx_ir.Model) -> str | None:
    """Return why the library does not load a model; None if it does."""
    try:
        open_model(model_to_bytes(model))
    except Exception as error:  # whatever the library raises
        return f"{type(error).__name__}: {error}"
    return None


def takes(node: NodeContext) -> Supported | Unsupported:
    """Refuse what is known beforehand, without the library."""
    for spec in (*node.inputs, *node.outputs):
        if spec is not None and (spec.kind is not ValueKind.PLANNED or spec.dtype != onnx_ir.DataType.FLOAT):
            return Unsupported("runs float32 tensors of known shapes only")
    return Supported()


class ExampleKernel:
    """A model that the library has loaded.

    Args:
        session: What the library calls it.
    """

    def __init__(self, session: Any) -> None:
        self._session = session

    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], workspace: Buffer | None) -> BoundCall:
        """Return a call that reads the inputs and writes the outputs; see `collage_core.contract.Kernel`."""
        feeds = {name: each.array for name, each in zip(self._session.input_names, inputs, strict=True)}

        def call() -> None:
            for found, place in zip(self._session.run(None, feeds), outputs, strict=True):
                np.copyto(place.array, found)  # better: have the library write there

        return call


class ExamplePlugin:
    """Answers Collage's hooks."""

    @hookimpl
    def collage_targets(self, host: Host) -> Sequence[Target] | Unsupported:
        """Return what this machine offers, or why nothing. Measurements belong to the fingerprint."""
        version = importlib.metadata.version("onnx")
        return [Target(toolchain="example", fingerprint=f"onnx {version}", joins=Joins.ANY)]

    @hookimpl
    def collage_register_predicates(self, table: PatternTable, target: Target) -> None:
        """Ask about every operator."""
        table.predicate("*", takes)

    @hookimpl
    def collage_query(self, target: Target, model: KernelFunction) -> Mapping[str, str] | None:
        """Return the nodes that the library refuses, by name, each with its words."""
        return refused_nodes(model.model, refusal)

    @hookimpl
    def collage_lower(self, function: KernelFunction) -> Iterator[Artifact]:
        """Compile: yield bytes that are loaded in another process, on another day."""
        yield Artifact(files={MODEL: model_to_bytes(function.model)})

    @hookimpl
    def collage_load(self, artifact: Artifact, run: RunContext) -> Kernel:
        """Load what was compiled; take no more than `run.threads` threads."""
        return ExampleKernel(open_model(artifact.files[MODEL]))


plugin = ExamplePlugin()
