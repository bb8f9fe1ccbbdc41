"""Kernels of a device in worker processes: measured there, packaged, and run beside kernels of the CPU."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx_ir
import pytest

from collage.devices.this_host import this_host
from collage.measure.driver.client import PluginSource, Worker
from collage.measure.wire.artifact_codec import artifact_of
from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.function_codec import FunctionEncoder
from collage.measure.wire.messages import AskBuild
from collage.measure.wire.outcomes import BuildSettings, Built, DeviceTimes, Failed, Measured, Stage, Tolerance
from collage.prepare.steps import prepare
from collage.reference import evaluate
from collage.runtime.load import load
from collage.runtime.package import save_package
from collage.setup.device_figures import DeviceFigures, WorkerMeter, device_figures
from collage.store.memory import MemoryStore
from collage_core.contract import Obstacle, Target, Unsupported
from collage_core.errors import KernelLoadError
from collage_core.fusion import CandidateKernel, FusionSpec, OpCallByKindRule, Partitioning, SubGraph
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits
from collage_core.passes.apply import apply_partitioning
from collage_core.passes.call_sites import call_sites
from collage_core.registry import Registry, Toolchain
from collage_testing import GraphBuilder
from collage_testing.kit import ExecutingMock, FakeDevice, fake_providers
from collage_testing.kit.fake_time import BYTES_PER_US, COPY_US, MISS_BYTES_PER_US
from tests.integration.measure.conftest import add_ask

FAR = Target(toolchain="far", device="fake:0", fingerprint="far 1")
NEAR = Target(toolchain="near", fingerprint="near mock")


def worker_of(store: BlobStore, toolchain: str, plugin: str, devices: str = "devices") -> Iterator[Worker]:
    """A worker whose toolchain and devices are those of `device_plugin`, by the names of its attributes."""
    source = PluginSource(
        toolchain=toolchain,
        plugin=f"device_plugin:{plugin}",
        devices=(("fake", f"device_plugin:{devices}"),),
        paths=(str(Path(__file__).parent),),
    )
    worker = Worker(source, store)
    yield worker
    worker.close()


@pytest.fixture(scope="module")
def far(store: BlobStore) -> Iterator[Worker]:
    yield from worker_of(store, "far", "plugin")


@pytest.fixture
def small(store: BlobStore) -> Iterator[Worker]:
    yield from worker_of(store, "far", "plugin", "small")


@pytest.fixture
def fragile(store: BlobStore) -> Iterator[Worker]:
    yield from worker_of(store, "far", "plugin", "fragile")


@pytest.fixture(scope="module")
def caching(store: BlobStore) -> Iterator[Worker]:
    yield from worker_of(store, "far", "plugin", "caching")


@pytest.fixture(scope="module")
def near(store: BlobStore) -> Iterator[Worker]:
    yield from worker_of(store, "near", "near")


def test_a_kernel_of_a_device_is_checked_and_timed_by_its_clock(store: BlobStore, far: Worker) -> None:
    outcome = far.measure(add_ask(store, FAR))

    assert isinstance(outcome, Measured)
    assert set(outcome.samples_us) == {1.0}
    assert outcome.calls_per_sample == 20
    assert (outcome.error, outcome.repeatable) == (0.0, True)
    assert (outcome.launch, outcome.launch_reason, outcome.weight_copies) == ("graph", "", 1)


@pytest.mark.parametrize(("cold", "copies", "us"), [(True, 5, 1.0 + 2048 / MISS_BYTES_PER_US), (False, 1, 1.0)])
def test_weights_a_plan_does_not_find_in_the_cache_are_not_found_there_when_a_kernel_is_timed(
    store: BlobStore, caching: Worker, cold: bool, copies: int, us: float
) -> None:
    outcome = caching.measure(dataclasses.replace(add_ask(store, FAR), cold=cold))

    assert isinstance(outcome, Measured), outcome
    assert outcome.weight_copies == copies  # four of 2 KiB fill 8 KiB
    assert outcome.samples_us == pytest.approx([us] * len(outcome.samples_us))


def test_a_device_is_timed_in_the_process_that_times_kernels(far: Worker, small: Worker, fragile: Worker) -> None:
    far.targets(this_host())
    pid = far.pid

    times = far.device_times("fake:0")

    assert isinstance(times, DeviceTimes), times
    figures = DeviceFigures.of("fake:0", times)
    assert figures.to_device.latency_us == figures.from_device.latency_us == pytest.approx(COPY_US, rel=1e-5)
    assert figures.to_device.bytes_per_us == pytest.approx(BYTES_PER_US, rel=1e-5)
    assert far.pid == pid
    for worker, reason in ((small, "300 bytes are free, too few"), (fragile, "it does not answer any more")):
        failed = worker.device_times("fake:0")
        assert isinstance(failed, Failed)
        assert reason in failed.reason
    unknown = far.device_times("fake:7")
    assert isinstance(unknown, Failed)
    assert "there is fake:0" in unknown.reason


def test_what_a_worker_measured_of_a_device_is_asked_for_once(far: Worker) -> None:
    asked: list[str] = []

    def worker(toolchain: str) -> Worker:
        asked.append(toolchain)
        return far

    database, host = MemoryStore(), this_host()
    meter = WorkerMeter(SimpleNamespace(worker=worker), [FAR])  # type: ignore[arg-type]
    first, second = (device_figures(database, host, ["cpu", "fake:0"], meter) for _ in range(2))

    assert first == second
    assert [figures.assumed for figures in first] == [""]
    assert asked == ["far"]


@pytest.mark.guards("a device has not the memory for lowering, for weights or code, for values, for a call")
def test_too_little_memory_costs_the_device_s_candidate_only(store: BlobStore, small: Worker, near: Worker) -> None:
    outcome = small.measure(add_ask(store, FAR))

    assert isinstance(outcome, Failed)
    assert outcome.stage is Stage.LOAD
    assert "device fake:0: 2048 bytes were asked for, 300 of 300 are free. Give the model smaller" in outcome.reason
    assert isinstance(near.measure(add_ask(store, NEAR)), Measured)


@pytest.mark.guards("a device is lost while a candidate is lowered, loaded, run or timed")
@pytest.mark.guards(
    "what owns memory of a lost device complains, or does not end, when the worker does",
    "the worker ends before that, and its last words are the reason",
    area="devices",
)
def test_a_lost_device_ends_the_process_and_the_next_candidate_gets_a_new_one(
    store: BlobStore, fragile: Worker, near: Worker
) -> None:
    outcomes, pids = [], []
    for _ in range(2):
        fragile.targets(this_host())
        pids.append(fragile.pid)
        outcomes.append(fragile.measure(add_ask(store, FAR)))

    for outcome in outcomes:
        assert isinstance(outcome, Failed)
        assert outcome.stage is Stage.BIND
        assert "device fake:0: it does not answer any more" in outcome.reason
    assert len(set(pids)) == 2
    assert isinstance(near.measure(add_ask(store, NEAR)), Measured)


def test_a_plan_on_both_is_built_by_workers_packaged_loaded_and_run(
    store: BlobStore, far: Worker, near: Worker, tmp_path: Path
) -> None:
    model = prepare(dense_model())
    graph = DataflowGraph(model)
    targets = [FAR, FAR, NEAR, FAR]
    kernels = []
    for index, target in zip(iterate_bits(graph.needs_kernel), targets, strict=True):
        spec = FusionSpec(name="by hand", rule=OpCallByKindRule(), targets=(target,))
        kernels.append(CandidateKernel(SubGraph(graph, 1 << index), spec))
    partitioned = apply_partitioning(Partitioning(graph, tuple(kernels)))
    artifacts = {}
    for site in call_sites(partitioned):
        worker, target = (far, FAR) if site.target == FAR.name else (near, NEAR)
        built = worker.build(
            AskBuild(
                target=target,
                function=FunctionEncoder(store).encode(site.kernel_function()),
                variant=None,
                inputs=(),
                expected=(),
                build=BuildSettings(threads=1),
                tolerance=Tolerance(),
                deadline_s=3600.0,
            )
        )
        assert isinstance(built, Built), built
        artifacts[site.name] = artifact_of(built.artifact, store)
    by_name = {FAR.name: FAR, NEAR.name: NEAR}
    path = tmp_path / "m.collage"
    save_package(
        path,
        partitioned,
        artifacts,
        {site.name: by_name[site.target] for site in call_sites(partitioned)},
        None,
        threads=1,
        model_name="m",
        model_sha256="",
    )

    device = FakeDevice("fake:0")
    here = ExecutingMock("far", costs_us={}, targets=[FAR])
    registry = Registry.of(Toolchain("far", here), Toolchain("near", ExecutingMock("near", costs_us={})))
    session = load(path, registry=registry, providers=fake_providers(device))
    device.log.clear()
    for run in range(3):
        x = np.random.default_rng(run).normal(size=(2, 4)).astype(np.float32)
        [y] = session.run(None, {"x": x})
        np.testing.assert_array_equal(y, evaluate(model, {"x": x}).values[str(model.graph.outputs[0].name)])

    # in and out, and out and in around the kernel of the CPU; a wait before it, and one at the end
    assert [len(device.kinds(kind)) for kind in ("write", "read", "synchronise", "allocate")] == [6, 6, 6, 0]
    assert [launch.mode for launch in session.launches] == ["graph", "graph"]
    with pytest.raises(KernelLoadError, match="device fake:0: nothing installed provides devices of kind fake"):
        load(path, registry=registry, providers=fake_providers())


def dense_model() -> onnx_ir.Model:
    g = GraphBuilder("dense")
    x = g.input("x", 2, 4)
    product = g.op("MatMul", x, g.weight("w", 4, 4))
    sigmoid = g.op("Sigmoid", g.op("Relu", product))
    return g.model(g.op("Add", sigmoid, product))


def test_what_stands_in_a_toolchains_way_crosses_the_process(store: BlobStore) -> None:
    [worker] = itertools.islice(worker_of(store, "far", "hindered"), 1)
    try:
        answer = worker.targets(this_host())
    finally:
        worker.close()

    assert answer == Unsupported("driver 470 is too old; install 525", Obstacle.DRIVER_TOO_OLD)
    assert isinstance(answer, Unsupported)
    assert isinstance(answer.obstacle, Obstacle)  # a plain text would be equal, too
