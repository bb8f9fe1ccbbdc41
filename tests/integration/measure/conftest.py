from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx_ir
import pytest

from collage.measure.driver.client import PluginSource, Worker
from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.function_codec import FunctionEncoder
from collage.measure.wire.messages import AskMeasure
from collage.measure.wire.outcomes import BuildSettings, Tolerance
from collage.measure.wire.values import encode_value
from collage_core.contract import KernelFunction, Protocol, Target, TensorSpec, content_hash

SOURCE = PluginSource(toolchain="faulty", plugin="faulty_plugin:plugin", paths=(str(Path(__file__).parent),))
SIZE = 512


def faulty_target(mode: str = "") -> Target:
    """The target of `faulty_plugin` that misbehaves in this way."""
    return Target(toolchain="faulty", options=(("mode", mode),) if mode else (), fingerprint="faulty 1")


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
