"""Partitioned models and a toolchain made in place: kernels that evaluate their function with the reference."""

from __future__ import annotations

import copy
import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from collage.reference import evaluate
from collage.runtime import Executable
from collage_core.contract import (
    Artifact,
    BoundCall,
    Buffer,
    Kernel,
    Requirement,
    RunContext,
    Target,
    Unsupported,
    ValueKind,
)
from collage_core.fusion import (
    CandidateKernel,
    FusionRule,
    FusionSpec,
    Partitioning,
    RuleContext,
    RuleOutcome,
    SubGraph,
)
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits
from collage_core.ir.io.model_io import model_from_bytes, model_to_bytes
from collage_core.passes.apply import apply_partitioning
from collage_core.passes.call_sites import CallSite, call_sites

MOCK = Target(toolchain="mock", fingerprint="mock 1")


def partition(model: ir.Model, groups: Sequence[Sequence[str]] | None = None, target: Target = MOCK) -> ir.Model:
    """A partitioned model.

    Args:
        model: A prepared model.
        groups: Names of the nodes of each kernel; None for one kernel per node that is not a view.
        target: What runs them.
    """
    graph = DataflowGraph(model)
    if groups is None:
        groups = [[graph.names[index]] for index in iterate_bits(graph.needs_kernel)]
    spec = FusionSpec(name="by hand", rule=ByHand(), targets=(target,))
    masks = [sum(1 << graph.index_of(name) for name in group) for group in groups]
    kernels = tuple(CandidateKernel(SubGraph(graph, graph.completed(mask)), spec) for mask in masks)
    return apply_partitioning(Partitioning(graph, kernels))


class ByHand(FusionRule):
    """The rule of kernels a test chooses itself."""

    def propose(self, graph: DataflowGraph, context: RuleContext) -> RuleOutcome:
        raise NotImplementedError


@dataclasses.dataclass
class ExecutingMock:
    """Lowers to the function itself, loads to a kernel that evaluates it.

    Attributes:
        embed: Whether artifacts hold their weights; otherwise they ask for them by content hash.
        workspace_bytes: Scratch memory each artifact asks for; its kernel overwrites it.
        requires: What each artifact requires.
        refuse: What the loader answers instead of a kernel, while there is something.
        fail: Call site whose kernel raises when it runs.
        loaded: How many kernels were made.
    """

    embed: bool = True
    workspace_bytes: int = 0
    requires: tuple[Requirement, ...] = ()
    refuse: list[str] = dataclasses.field(default_factory=list)
    fail: str = ""
    loaded: int = 0

    def lower(self, site: CallSite) -> Artifact:
        function = site.kernel_function()
        constants = {}
        model = function.model
        if not self.embed:
            constants = dict(function.constants)
            model = model.clone()
            for name in constants:
                value = model.graph.initializers.pop(name)
                value.const_value = None
                model.graph.inputs.append(value)
        return Artifact(
            files={"model.onnx": model_to_bytes(model)},
            metadata={"site": site.name},
            requires=self.requires,
            constants=constants,
            workspace_bytes=self.workspace_bytes,
        )

    def lower_all(self, model: ir.Model) -> dict[str, Artifact]:
        return {site.name: self.lower(site) for site in call_sites(model)}

    def load(self, target: Target, artifact: Artifact, run: RunContext) -> Kernel | Unsupported:
        assert run.scratch is not None
        assert run.scratch.is_dir()
        if self.refuse:
            return Unsupported(self.refuse.pop())
        self.loaded += 1
        constants = {name: run.constants[key] for name, key in artifact.constants.items()}
        fail = artifact.metadata["site"] == self.fail
        return MockKernel(model_from_bytes(artifact.files["model.onnx"]), constants, artifact.workspace_bytes, fail)

    def build(self, model: ir.Model, **options: Any) -> Executable:
        artifacts = self.lower_all(model)
        return Executable.build(model, artifacts, dict.fromkeys(artifacts, MOCK), self.load, threads=1, **options)


class MockKernel:
    """Evaluates a model, and checks on every call what the runtime promises a kernel."""

    def __init__(self, model: ir.Model, constants: Mapping[str, Any], workspace_bytes: int, fail: bool) -> None:
        self.model = model
        self.constants = constants
        self.workspace_bytes = workspace_bytes
        self.fail = fail

    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], workspace: Buffer | None) -> BoundCall:
        names = [str(value.name) for value in self.model.graph.inputs if value.name not in self.constants]
        wanted = [str(value.name) for value in self.model.graph.outputs]
        assert (workspace is None) == (self.workspace_bytes == 0)
        arrays = [(buffer, buffer.array) for buffer in (*inputs, *outputs) if buffer.spec.kind is ValueKind.PLANNED]
        written = [array for buffer, array in arrays if buffer in outputs]
        if workspace is not None:
            assert workspace.array.nbytes == self.workspace_bytes
            written.append(workspace.array)
        for one, other in itertools.combinations([array for _, array in arrays], 2):
            if any(one is array or other is array for array in written):
                assert not np.shares_memory(one, other)
        assert all(array.flags.aligned and array.flags.c_contiguous for _, array in arrays)

        def call() -> None:
            if self.fail:
                raise RuntimeError("out of luck")
            assert all(buffer.array is array for buffer, array in arrays)
            feeds = {name: buffer.value for name, buffer in zip(names, inputs, strict=True)}
            # what a kernel returns by reference must not lie in memory the runtime reuses
            values = evaluate(self.model, {**copy.deepcopy(feeds), **self.constants}).values
            if workspace is not None:
                workspace.array.fill(0xAB)
            for array in written:
                array.view(np.uint8 if array.ndim else array.dtype).fill(0)
            for name, buffer in zip(wanted, outputs, strict=True):
                value = values[name]
                buffer.put(value if isinstance(value, list | type(None)) else np.asarray(value))

        return call


def reference(model: ir.Model, feeds: Mapping[str, Any]) -> list[Any]:
    """Outputs of a model by the reference evaluator."""
    values = evaluate(model, feeds).values
    return [values[str(value.name)] for value in model.graph.outputs]
