from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir
import pytest

from collage.devices.this_host import this_host
from collage.measure.driver.capture import Capture
from collage.measure.driver.client import PluginSource, Worker
from collage.measure.driver.settings import MeasureSettings
from collage.measure.driver.source import MeasuringCostSource
from collage.measure.driver.worker_pool import WorkerPool
from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.function_codec import FunctionEncoder
from collage.measure.wire.messages import AskBuild, AskMeasure
from collage.measure.wire.outcomes import BuildSettings, Tolerance
from collage.measure.wire.values import encode_value
from collage.setup.inputs.random_arrays import random_inputs
from collage.store import MemoryStore, TuningStore
from collage_core.contract import KernelFunction, Protocol, Target, TensorSpec, content_hash
from collage_core.ir.graph.dataflow import DataflowGraph
from tests.integration.measure.sourcing import Make, chain, faulty_target

SOURCE = PluginSource(toolchain="faulty", plugin="faulty_plugin:plugin", paths=(str(Path(__file__).parent),))
SIZE = 512


def add_function(size: int = SIZE) -> KernelFunction:
    """`y = x + w`."""
    weight = np.arange(size, dtype=np.float32)
    w = onnx_ir.Value(name="w", const_value=onnx_ir.tensor(weight, name="w"))
    x = onnx_ir.val("x", dtype=onnx_ir.DataType.FLOAT, shape=[size])
    node = onnx_ir.node("Add", [x, w], name="add")
    y = node.outputs[0]
    y.name, y.dtype, y.shape = "y", onnx_ir.DataType.FLOAT, onnx_ir.Shape([size])
    graph = onnx_ir.Graph([x], [y], nodes=[node], initializers=[w], opset_imports={"": 20}, name="g")
    spec = TensorSpec(name="x", dtype=onnx_ir.DataType.FLOAT, shape=(size,))
    return KernelFunction(
        name="k0",
        model=onnx_ir.Model(graph, ir_version=10),
        inputs=(spec,),
        outputs=(TensorSpec(name="y", dtype=onnx_ir.DataType.FLOAT, shape=(size,)),),
        constants={"w": content_hash(weight)},
    )


def add_ask(store: BlobStore, target: Target, *, variants: int = 2) -> AskMeasure:
    x = np.linspace(-1, 1, SIZE, dtype=np.float32)
    return AskMeasure(
        target=target,
        function=FunctionEncoder(store).encode(add_function()),
        inputs=(encode_value(x, store),),
        expected=(encode_value(x + np.arange(SIZE, dtype=np.float32), store),),
        build=BuildSettings(threads=1, max_variants=variants),
        protocol=Protocol(warmup_s=0, min_samples=3, max_samples=10, duration_s=0.01, min_sample_us=20),
        tolerance=Tolerance(relative=1e-4),
        deadline_s=3600.0,
    )


@pytest.fixture(scope="package")
def store(tmp_path_factory: pytest.TempPathFactory) -> BlobStore:
    return BlobStore(tmp_path_factory.mktemp("blobs"))


@pytest.fixture(scope="package")
def worker(store: BlobStore) -> Iterator[Worker]:
    worker = Worker(SOURCE, store)
    yield worker
    worker.close()


@pytest.fixture
def ask(store: BlobStore) -> Callable[..., AskMeasure]:
    def make(mode: str, *, variants: int = 2) -> AskMeasure:
        return add_ask(store, faulty_target(mode), variants=variants)

    return make


@pytest.fixture(scope="module")
def pool(store: BlobStore) -> Iterator[WorkerPool]:
    with WorkerPool([SOURCE], store) as pool:
        yield pool


@pytest.fixture(scope="module")
def graph() -> DataflowGraph:
    return chain()


@pytest.fixture(scope="module")
def capture(graph: DataflowGraph, store: BlobStore) -> Capture:
    return Capture.take(graph.model, random_inputs(graph, seed=0), store)


@pytest.fixture
def database() -> TuningStore:
    return MemoryStore()


@pytest.fixture
def make(pool: WorkerPool, capture: Capture, database: TuningStore) -> Make:
    def make(
        tolerance: float = 1e-4,
        deadline_s: float = 3600.0,
        plugin: str = "1",
        *,
        workers: WorkerPool = pool,
        retry_failed: bool = False,
        load_wait_s: float = 0.0,
    ) -> MeasuringCostSource:
        return MeasuringCostSource(
            pool=workers,
            capture=lambda: capture,
            database=database,
            host=this_host(),
            plugins={"faulty": plugin},
            retry_failed=retry_failed,
            settings=MeasureSettings(
                build=BuildSettings(threads=1, max_variants=2),
                protocol=Protocol(warmup_s=0, duration_s=0.005, min_samples=3, min_sample_us=10),
                tolerance=Tolerance(relative=tolerance),
                deadline_s=deadline_s,
                load_wait_s=load_wait_s,
            ),
            now=lambda: datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
        )

    return make


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[AskMeasure | AskBuild]:
    """What workers were asked."""
    requests: list[AskMeasure | AskBuild] = []
    measure, build = Worker.measure, Worker.build

    def measured(worker: Worker, ask: AskMeasure) -> Any:
        requests.append(ask)
        return measure(worker, ask)

    def built(worker: Worker, ask: AskBuild) -> Any:
        requests.append(ask)
        return build(worker, ask)

    monkeypatch.setattr(Worker, "measure", measured)
    monkeypatch.setattr(Worker, "build", built)
    return requests
