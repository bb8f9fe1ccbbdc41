"""Partitioned models split between the CPU and fake devices."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir

from collage.runtime import Executable, loader
from collage_core.contract import Artifact, KernelFunction, Target, Unsupported
from collage_core.fusion import CandidateKernel, FusionSpec, Partitioning, SubGraph
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits
from collage_core.passes.apply import apply_partitioning
from collage_core.passes.call_sites import call_sites
from collage_core.registry import Registry, Toolchain
from collage_testing.kit import ExecutingMock, FakeDevice, fake_providers
from collage_testing.kit.fake_kernel import lower_for_fake
from tests.engine.runtime.mocks import ByHand

CPU = Target(toolchain="mock", fingerprint="mock 1")


def on(device: str, **options: str) -> Target:
    return Target(toolchain="mock", device=device, fingerprint="mock 1", options=tuple(sorted(options.items())))


def split(model: ir.Model, targets: Mapping[str, Target], groups: Sequence[Sequence[str]] | None = None) -> ir.Model:
    """A partitioned model, its kernels on the targets of their first nodes; the others' on the CPU."""
    graph = DataflowGraph(model)
    if groups is None:
        groups = [[graph.names[index]] for index in iterate_bits(graph.needs_kernel)]
    kernels = []
    for group in groups:
        spec = FusionSpec(name="by hand", rule=ByHand(), targets=(targets.get(group[0], CPU),))
        mask = graph.completed(sum(1 << graph.index_of(name) for name in group))
        kernels.append(CandidateKernel(SubGraph(graph, mask), spec))
    return apply_partitioning(Partitioning(graph, tuple(kernels)))


def lowered(model: ir.Model, targets: Mapping[str, Target], capturable: Any = True) -> dict[str, Artifact]:
    """Artifacts of a split model; `capturable` is a value, or a function of a site's name."""
    toolchain = ExecutingMock("mock", costs_us={})
    artifacts = {}
    for site in call_sites(model):
        function: KernelFunction = site.kernel_function()
        target = targets[site.name]
        if target.device == "cpu":
            made = toolchain.collage_lower(target, function)
            assert not isinstance(made, Unsupported)
            artifacts[site.name] = next(made)
        else:
            can = capturable(site) if callable(capturable) else capturable
            artifacts[site.name] = next(lower_for_fake(function, capturable=can))
    return artifacts


def targets_of(model: ir.Model, known: Sequence[Target]) -> dict[str, Target]:
    by_name = {target.name: target for target in (CPU, *known)}
    return {site.name: by_name[site.target] for site in call_sites(model)}


def build(
    model: ir.Model, known: Sequence[Target], *devices: FakeDevice, capturable: Any = True, **options: Any
) -> Executable:
    targets = targets_of(model, known)
    return Executable.build(
        model,
        lowered(model, targets, capturable),
        targets,
        loader(Registry.of(Toolchain("mock", ExecutingMock("mock", costs_us={})))),
        threads=1,
        providers=fake_providers(*devices),
        **options,
    )


def random_split(model: ir.Model, seed: int, places: Sequence[Target]) -> ir.Model:
    """Kernels of neighbours in the graph's order, each somewhere."""
    rng = random.Random(seed)
    graph = DataflowGraph(model)
    order = list(iterate_bits(graph.needs_kernel))
    groups, targets = [], {}
    while order:
        size = rng.choice([1, 1, 2, 3])
        mask = graph.completed(sum(1 << index for index in order[:size]))
        group = [graph.names[index] for index in iterate_bits(mask)]
        groups.append(group)
        targets[group[0]] = rng.choice(places)
        del order[:size]
    return split(model, targets, groups)
