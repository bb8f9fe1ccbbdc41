"""A kernel that is timed, then confirmed and built, is lowered once; one for other weights or settings is not it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from collage.devices.opening import Devices
from collage.devices.this_host import this_host
from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.function_codec import FunctionEncoder
from collage.measure.wire.messages import AskBuild, AskMeasure
from collage.measure.wire.outcomes import BuildSettings, Built, Measured, Tolerance
from collage.measure.wire.values import encode_value
from collage.measure.worker import lowering
from collage.measure.worker.lowering import KeptArtifacts
from collage.measure.worker.trials import Trials
from collage.reference import evaluate
from collage_core.contract import Artifact, KernelFunction, Protocol, Target, Unsupported
from collage_core.fusion import SubGraph
from collage_core.fusion.kernel import kernel_function
from collage_core.hookspecs import hookimpl
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.registry import Toolchain
from collage_testing import GraphBuilder
from collage_testing.kit import ExecutingMock, fake_providers

TARGET = Target(toolchain="counting", fingerprint="1")
WIDTH = 16
X = np.ones((1, WIDTH), np.float32)


class Counting(ExecutingMock):
    """Counts how often it lowers."""

    lowered = 0

    @hookimpl
    def collage_lower(self, target: Target, function: KernelFunction) -> Iterator[Artifact] | Unsupported:
        self.lowered += 1
        return super().collage_lower(target, function)


class Worker:
    """What a worker of that toolchain does, in this process."""

    def __init__(self, folder: Path) -> None:
        self.plugin = Counting("counting", costs_us={}, targets=[TARGET])
        self.store = BlobStore(folder / "blobs")
        self.trials = Trials(
            Toolchain("counting", self.plugin),
            self.store,
            folder,
            lambda target: None,  # type: ignore[arg-type, return-value]
            lambda progress: None,
            host=this_host(),
            devices=Devices(fake_providers().open),
        )

    def ask(self, weight: float, variant: str | None) -> AskMeasure:
        """Return the request to measure a product with a matrix whose elements are alike."""
        g = GraphBuilder("product")
        w = g.constant("w", np.full((WIDTH, WIDTH), weight, np.float32))
        graph = DataflowGraph(g.model(g.op("MatMul", g.input("x", 1, WIDTH), w)))
        function = kernel_function(SubGraph(graph, graph.all_mask), "k")
        values = evaluate(function.model, {function.inputs[0].name: X}).values
        return AskMeasure(
            target=TARGET,
            function=FunctionEncoder(self.store).encode(function),
            inputs=(encode_value(X, self.store),),
            expected=(encode_value(values[function.outputs[0].name], self.store),),
            build=BuildSettings(threads=1),
            protocol=Protocol(warmup_runs=1, warmup_s=0, min_samples=3, max_samples=3, duration_s=0),
            tolerance=Tolerance(),
            deadline_s=60.0,
            variant=variant,
        )

    def build(self, ask: AskMeasure) -> Built:
        names = [field.name for field in dataclasses.fields(AskBuild)]
        built = self.trials.build(AskBuild(**{name: getattr(ask, name) for name in names}))
        assert isinstance(built, Built)
        return built


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Worker:
    monkeypatch.setattr(lowering, "_LEAST_S", 0.0)
    return Worker(tmp_path)


def test_what_was_timed_is_confirmed_and_built_without_lowering_it_again(worker: Worker) -> None:
    first = worker.trials.measure(worker.ask(1.0, None))
    assert isinstance(first, Measured)

    again = worker.trials.measure(worker.ask(1.0, first.variant))
    built = worker.build(worker.ask(1.0, first.variant))

    assert isinstance(again, Measured)
    assert (worker.plugin.lowered, again.build_s, built.build_s) == (1, 0.0, 0.0)


def test_another_weight_is_another_kernel(worker: Worker) -> None:
    first = worker.trials.measure(worker.ask(1.0, None))
    assert isinstance(first, Measured)

    other = worker.trials.measure(worker.ask(2.0, first.variant))

    assert isinstance(other, Measured)  # so it was right: the judge had other values to compare with
    assert worker.plugin.lowered == 2


def test_other_settings_are_another_kernel(worker: Worker) -> None:
    ask = worker.ask(1.0, None)
    first = worker.trials.measure(ask)
    assert isinstance(first, Measured)

    worker.build(dataclasses.replace(ask, variant=first.variant, build=BuildSettings(threads=2)))

    assert worker.plugin.lowered == 2


def kept(worker: Worker, weight: float, nbytes: int, seconds: float, into: KeptArtifacts) -> AskMeasure:
    ask = worker.ask(weight, None)
    into.keep(ask, Artifact(files={"f": bytes(nbytes)}, variant="v"), seconds)
    return ask


def test_the_one_asked_for_longest_ago_makes_room(worker: Worker) -> None:
    artifacts = KeptArtifacts(memory_bytes=32 * 100)
    first, second = (kept(worker, weight, 40, 1.0, artifacts) for weight in (1.0, 2.0))
    assert artifacts.artifact(first, "v") is not None

    third = kept(worker, 3.0, 40, 1.0, artifacts)

    assert [artifacts.artifact(ask, "v") is not None for ask in (first, second, third)] == [True, False, True]
    assert artifacts.artifact(first, "other") is None


def test_what_is_larger_than_all_room_drops_nothing(worker: Worker) -> None:
    artifacts = KeptArtifacts(memory_bytes=32 * 100)
    first = kept(worker, 1.0, 40, 1.0, artifacts)

    large = kept(worker, 2.0, 101, 1.0, artifacts)

    assert artifacts.artifact(large, "v") is None
    assert artifacts.artifact(first, "v") is not None


def test_what_is_lowered_quickly_is_not_kept(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lowering, "_LEAST_S", 1.0)
    artifacts = KeptArtifacts(memory_bytes=32 * 100)

    quick, slow = (kept(worker, weight, 10, seconds, artifacts) for weight, seconds in ((1.0, 0.9), (2.0, 1.1)))

    assert [artifacts.artifact(ask, "v") is not None for ask in (quick, slow)] == [False, True]
