"""A plan's life beyond the machine it was made on: another version of the library, too little memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest

from collage.reference import evaluate
from collage.runtime import Executable, Lowered, Relower, loader
from collage.runtime.session import Session
from collage.setup.inputs.random_arrays import random_inputs
from collage_core.contract import Artifact, BuildContext, Target
from collage_core.errors import DeviceMemoryError, KernelLoadError
from collage_core.fusion import Partitioning
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.passes.apply import apply_partitioning
from collage_core.passes.call_sites import CallSite, call_sites
from collage_core.registry import Registry, Toolchain
from collage_cublas.plugin import CublasPlugin
from collage_testing import dense
from collage_testing.kit import FakeDevice, fake_providers
from collage_testing.kit.contexts import MemoryBlobs
from collage_testing.kit.gpu_plugins import HOST

from .emulator import Emulator, Notes
from .machine import TARGET, plugin_over, proposals


class Later(Notes):
    """The next release."""

    def version(self) -> int:
        return 130100


class Case:
    """A dense layer as one kernel, lowered on a machine with cuBLASLt 13.0."""

    def __init__(self, build: BuildContext, workspace: bool = False) -> None:
        self.model = dense(m=4, n=8, k=16, activation="Relu")
        graph = DataflowGraph(self.model)
        self.feeds = random_inputs(graph, seed=0)
        [output] = self.model.graph.outputs
        self.expected = evaluate(self.model, self.feeds).values[str(output.name)]
        whole = max(proposals(graph).candidates, key=lambda each: len(each.sub_graph.names))
        self.partitioned = apply_partitioning(Partitioning(graph, (whole,)))
        self._build = build
        [self.site] = call_sites(self.partitioned)
        self.artifact = self.lowered(plugin_over(Emulator()), self.site)[0 if workspace else 1]

    def lowered(self, plugin: CublasPlugin, site: CallSite) -> list[Artifact]:
        # a cache of its own, as core keeps one for each version
        build = dataclasses.replace(self._build, blobs=MemoryBlobs())
        answer = plugin.collage_lower(TARGET, site.kernel_function(), build)
        assert isinstance(answer, Iterator), answer
        return list(answer)

    def loaded(self, plugin: CublasPlugin, relower: Relower | None, device: FakeDevice | None = None) -> Executable:
        return Executable.build(
            self.partitioned,
            {self.site.name: self.artifact},
            {self.site.name: TARGET},
            loader(Registry.of(Toolchain("cublas", plugin))),
            threads=1,
            relower=relower,
            host=HOST,
            providers=fake_providers(device or FakeDevice("cuda:0")),
        )


def test_a_plan_of_another_version_asks_the_heuristic_of_this_one_again(build: BuildContext) -> None:
    case, emulator = Case(build), Emulator(Later())
    plugin = plugin_over(emulator)

    made: list[Artifact] = []

    def relower(site: CallSite, target: Target) -> Iterator[Lowered]:
        made.append(case.lowered(plugin, site)[0])
        yield Lowered(target=target, artifact=made[-1])

    executable = case.loaded(plugin, relower)

    [again] = executable.source.reports
    assert "one of cuBLASLt 13.0.0, which keeps it for no other version; this is 13.1.0" in again.reason
    assert emulator.asked
    assert made[0].metadata["version"] == 130100
    [found] = Session(executable).run(None, case.feeds)
    np.testing.assert_allclose(found, case.expected, atol=1e-5)


def test_a_plan_of_this_version_asks_nothing(build: BuildContext) -> None:
    case, emulator = Case(build), Emulator()

    executable = case.loaded(plugin_over(emulator), None)

    assert not executable.source.reports[0].reason
    assert emulator.asked == []
    [found] = Session(executable).run(None, case.feeds)
    np.testing.assert_allclose(found, case.expected, atol=1e-5)


def test_where_it_cannot_be_lowered_again_the_versions_are_named(build: BuildContext) -> None:
    with pytest.raises(KernelLoadError, match=r"of cuBLASLt 13\.0\.0, .*; this is 13\.1\.0"):
        Case(build).loaded(plugin_over(Emulator(Later())), None)


def test_too_little_memory_for_the_workspace_is_an_error_of_its_own_type(build: BuildContext) -> None:
    case = Case(build, workspace=True)
    assert case.artifact.workspace_bytes == 1 << 20

    with pytest.raises(DeviceMemoryError, match=r"cuda:0: \d+ bytes were asked for"):
        case.loaded(plugin_over(Emulator()), None, FakeDevice("cuda:0", memory_bytes=1 << 19))
