"""A device with everybody who can use it, and plans for it made by hand."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir
import pytest

from collage.devices.providers import Providers
from collage.runtime import Executable, loader
from collage.runtime.package import TrustedPackages, save_package
from collage.runtime.session import Session
from collage_core.candidates.proposals import propose, target_rule
from collage_core.contract import Artifact, Device, Target
from collage_core.fusion import CandidateBounds, CandidateKernel, Partitioning
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits
from collage_core.passes.apply import apply_partitioning
from collage_core.passes.call_sites import call_sites
from collage_core.registry import Registry
from collage_cuda.provider import CudaProvider
from collage_testing.kit import DeviceMachine


@dataclasses.dataclass(frozen=True, kw_only=True)
class Place:
    """A device and its toolchains.

    Attributes:
        machines: The device as each toolchain that is usable there has it, by its name.
        replays: How often a captured plan is run to see whether it gives the same bits.
        model: What plans are made for: nodes of which each toolchain takes some alone, with one input, `x`.
        providers: Who provides the device; those installed if None.
    """

    machines: Mapping[str, DeviceMachine]
    replays: int
    model: Callable[[], onnx_ir.Model]
    providers: Providers | None = None

    @property
    def machine(self) -> DeviceMachine:
        """One of them, for what is the same for all."""
        return next(iter(self.machines.values()))

    @property
    def device(self) -> str:
        """Its name."""
        return self.machine.stream.name

    @functools.cached_property
    def registry(self) -> Registry:
        """The toolchains."""
        return Registry.of(*(each.toolchain for each in self.machines.values()))

    @functools.cached_property
    def targets(self) -> Mapping[str, Target]:
        """The plain target of each toolchain, by its name."""
        return {name: plain(machine)[0] for name, machine in self.machines.items()}

    def plan(self, folder: Path, launch: str = "graph") -> Plan:
        """Each node of the model as a kernel of its own, dealt out so that every toolchain has some; lowered.

        Args:
            folder: For toolchains.
            launch: How kernels are launched.
        """
        model = self.model()
        targets = {
            name: target if launch == target.launch else with_option(target, "launch", launch)
            for name, target in self.targets.items()
        }
        graph = DataflowGraph(model)
        takers = {name: self._alone(name, target, graph) for name, target in targets.items()}
        dealt = dict.fromkeys(targets, 0)
        kernels = []
        for index in iterate_bits(graph.needs_kernel):
            able = [name for name in targets if index in takers[name]]
            # those who can do little first, then in turn
            name = min(able, key=lambda each: (dealt[each], len(takers[each]), each))
            dealt[name] += 1
            kernels.append(takers[name][index])
        partitioned = apply_partitioning(Partitioning(graph, tuple(kernels)))
        by_name = {target.name: target for target in targets.values()}
        chosen = {site.name: by_name[site.target] for site in call_sites(partitioned)}
        artifacts = {}
        for site in call_sites(partitioned):
            machine = self.machines[site.toolchain]
            [artifacts[site.name]] = machine.variants(
                site.kernel_function(), chosen[site.name], folder, effort=0, max_variants=1
            )
        return Plan(place=self, model=partitioned, artifacts=artifacts, targets=chosen, dealt=dealt)

    def inputs(self, seed: int) -> dict[str, np.ndarray[Any, Any]]:
        """What plans are run on."""
        [x] = self.model().graph.inputs
        assert x.shape is not None
        return {"x": np.random.default_rng(seed).normal(size=x.shape.numpy()).astype(np.float32)}

    def _alone(self, name: str, target: Target, graph: DataflowGraph) -> dict[int, CandidateKernel]:
        """The candidates of a toolchain that are one node, by its index."""
        rule = target_rule(self.registry.toolchains[name], target, {})
        proposals = propose(rule, graph, CandidateBounds.preset("default"))
        return {
            index: candidate
            for candidate in proposals.candidates
            for index in iterate_bits(graph.needs_kernel)
            if candidate.sub_graph.nodes & graph.needs_kernel == 1 << index
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """A plan by hand.

    Attributes:
        place: For which device.
        model: The partitioned model.
        artifacts: By call site.
        targets: By call site.
        dealt: How many kernels each toolchain has.
    """

    place: Place
    model: onnx_ir.Model
    artifacts: Mapping[str, Artifact]
    targets: Mapping[str, Target]
    dealt: Mapping[str, int]

    @property
    def steps(self) -> int:
        """How many kernels it has."""
        return sum(self.dealt.values())

    @property
    def deterministic(self) -> bool:
        """Whether every kernel says that it gives the same bits each time."""
        return all(artifact.deterministic for artifact in self.artifacts.values())

    def session(self) -> Session:
        """Loaded in this process."""
        registry = self.place.registry
        return Session(
            Executable.build(
                self.model,
                self.artifacts,
                self.targets,
                loader(registry),
                threads=1,
                host=self.place.machine.host,
                providers=self.place.providers,
            )
        )

    def save(self, path: Path) -> None:
        """As a package, which is trusted then."""
        digest = save_package(
            path, self.model, self.artifacts, self.targets, None, threads=1, model_name="by hand", model_sha256=""
        )
        TrustedPackages().add(digest, path, "written")


def plain(machine: DeviceMachine) -> list[Target]:
    """The exact targets of a toolchain on a device that take part without being asked for."""
    return [target for target in machine.targets if target.exact and not target.on_request]


def with_option(target: Target, name: str, value: str) -> Target:
    return dataclasses.replace(target, options=tuple(sorted({**dict(target.options), name: value}.items())))


def seen_as(patch: pytest.MonkeyPatch, *devices: Device) -> None:
    """Has this machine seen with other devices than it has."""
    patch.setattr(CudaProvider, "devices", lambda self: devices)
