"""Packages with one thing wrong inside: what a toolchain's bug, or a mix-up of weights, would leave behind."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TypeAlias

import numpy as np
import onnx_ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from collage.build.lowering_workers import LoweringWorkers
from collage.measure.wire.outcomes import BuildSettings
from collage.runtime.package import load_package, save_package
from collage_core.contract import Artifact, KernelFunction, Target
from collage_core.fusion import CandidateKernel, FusionSpec, OpCallByKindRule, Partitioning, SubGraph
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.values.content import constant_of
from collage_core.passes.apply import apply_partitioning
from collage_core.passes.call_sites import CallSite, call_sites
from collage_core.registry import Registry

Kind: TypeAlias = Literal["activation", "weight", "bias"]
THREADS = 2


@dataclasses.dataclass(frozen=True)
class Mutation:
    """One thing to be wrong.

    Attributes:
        kind: An activation is dropped, two channels of a weight change places, or a bias is lost.
        site: Call site of the kernel.
        place: Position of the node in the kernel's function.
        about: The node's operator and what is concerned, for messages.
    """

    kind: Kind
    site: str
    place: int
    about: str


class Workshop:
    """Lowers kernels in the toolchains' workers."""

    def __init__(self) -> None:
        self._workers = LoweringWorkers(Registry.discover().toolchains)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._workers.close()

    def target(self, toolchain: str) -> Target:
        """The default target of a toolchain."""
        answer = self._workers.offered(toolchain)
        assert isinstance(answer, tuple), answer
        return answer[0]

    def lowered(self, target: Target, function: KernelFunction) -> Artifact:
        """The artifact of a kernel, unchecked."""
        artifact = self._workers.lowered(function, target, BuildSettings(threads=THREADS))
        assert isinstance(artifact, Artifact), artifact
        return artifact

    def package(self, graph: DataflowGraph, parts: Sequence[tuple[str, int]], path: Path) -> None:
        """Saves a package of these kernels: toolchain and nodes of each."""
        kernels = []
        for toolchain, nodes in parts:
            target = self.target(toolchain)
            spec = FusionSpec(name=target.name, rule=OpCallByKindRule(), targets=(target,))
            kernels.append(CandidateKernel(SubGraph(graph, graph.completed(nodes)), spec))
        model = apply_partitioning(Partitioning(graph, tuple(kernels)))
        sites = call_sites(model)
        targets = {site.name: self.target(site.toolchain) for site in sites}
        artifacts = {site.name: self.lowered(targets[site.name], site.kernel_function()) for site in sites}
        _save(path, model, artifacts, targets)

    def mutated(self, path: Path, mutation: Mutation, random: np.random.Generator, out: Path) -> None:
        """Saves a package with one thing wrong in it."""
        package = load_package(path)
        model = package.plan.model
        site = next(site for site in call_sites(model) if site.name == mutation.site)
        if mutation.kind == "weight":
            _swap_channels(site, mutation, random)
        function = site.kernel_function()
        node = function.model.graph[mutation.place]
        if mutation.kind == "activation":
            node.op_type = "Identity"
            node.attributes.clear()
        elif mutation.kind == "bias":
            _lose_bias(node)
            RemoveUnusedNodesPass()(function.model)  # of a bias ONNX Runtime is not to replace: it has none any more
        artifact = self.lowered(package.plan.targets[site.name], function)
        _save(out, model, {**package.plan.artifacts, site.name: artifact}, package.plan.targets)


def mutations(path: Path) -> Mapping[Kind, Sequence[Mutation]]:
    """Everything that can be made wrong in a package, by kind."""
    found: dict[Kind, list[Mutation]] = {"activation": [], "weight": [], "bias": []}
    for site in call_sites(load_package(path).plan.model):
        for place, node in enumerate(site.kernel_function().model.graph):
            for kind, name in _concerned(node, site):
                found[kind].append(Mutation(kind, site.name, place, f"{node.op_type} {name}"))
    return found


def _concerned(node: onnx_ir.Node, site: CallSite) -> Iterator[tuple[Kind, str]]:
    made = str(node.outputs[0].name)
    if node.op_type in ("Relu", "Erf", "Tanh"):
        yield "activation", made
    if (weight := _operand(node, "weight")) is not None:
        yield "weight", f"{_outer(site, weight).name} of {made}"
    # a bias of keys adds the same to every score of a query, which is nothing to the Softmax after it
    if _operand(node, "bias") is not None and "/key/" not in made:
        yield "bias", made


def _operand(node: onnx_ir.Node, kind: Kind) -> onnx_ir.Value | None:
    """The constant of this kind that a node reads."""
    constants = [value for value in node.inputs if constant_of(value) is not None]
    match kind, node.op_type:
        case "weight", "Conv" | "MatMul" | "Gemm":
            rank, wanted = None, node.inputs[1]
        case "bias", "Conv" | "Gemm" | "LayerNormalization":
            rank, wanted = 1, node.inputs[2] if len(node.inputs) > 2 else None
        case "bias", "Add":
            rank, wanted = 1, constants[0] if constants else None
        case _:
            return None
    if wanted not in constants or wanted is None or wanted.shape is None:
        return None
    return wanted if rank is None or (len(wanted.shape) == rank and wanted.shape.numpy()[0] > 1) else None


def _outer(site: CallSite, inner: onnx_ir.Value) -> onnx_ir.Value:
    """The constant of the main graph that a kernel function's constant is."""
    return next(value for value in site.constants if value.const_value is inner.const_value)


def _swap_channels(site: CallSite, mutation: Mutation, random: np.random.Generator) -> None:
    """Two output channels of a weight change places in the model that the package keeps."""
    node = site.kernel_function().model.graph[mutation.place]
    inner = _operand(node, "weight")
    assert inner is not None
    outer = _outer(site, inner)
    assert outer.const_value is not None
    array = outer.const_value.numpy().copy()
    transposed = node.attributes.get("transB")
    first = node.op_type == "Conv" or (transposed is not None and bool(transposed.as_int()))
    channels = np.moveaxis(array, 0 if first else -1, 0)
    one, other = random.choice(len(channels), 2, replace=False)
    channels[[one, other]] = channels[[other, one]]
    outer.const_value = onnx_ir.tensor(array, name=outer.name)


def _lose_bias(node: onnx_ir.Node) -> None:
    if node.op_type == "Add":
        data = next(place for place, value in enumerate(node.inputs) if constant_of(value) is None)
        node.replace_input_with(0, node.inputs[data])
        node.resize_inputs(1)
        node.op_type = "Identity"
    else:
        node.resize_inputs(2)


def _save(path: Path, model: onnx_ir.Model, artifacts: Mapping[str, Artifact], targets: Mapping[str, Target]) -> None:
    save_package(path, model, artifacts, targets, None, threads=THREADS, model_name=path.stem, model_sha256="")
