"""On a GPU: numbers of every epilogue, type and transposition, all variants, and calls in a CUDA graph.

Needs the library and CuPy, which gives memory and streams. Nobody has run these yet.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir
import pytest

from collage_core.contract import Artifact, Buffer, BuildContext, Host, RunContext, Target, TensorSpec, Unsupported
from collage_core.fusion import kernel_function
from collage_core.ir.dataflow import DataflowGraph
from collage_core.measure.random_inputs import random_inputs
from collage_core.reference import evaluate
from collage_core.registry import Toolchain
from collage_core.testing import GraphBuilder, check_plugin
from collage_core.testing.kernel_check import MemoryBlobs
from collage_cublas.plugin import CublasPlugin, plugin

from .machine import proposals

pytestmark = pytest.mark.gpu

DTYPES = ("FLOAT", "FLOAT16", "BFLOAT16")
TOLERANCES = {"FLOAT": 1e-4, "FLOAT16": 1e-2, "BFLOAT16": 5e-2}
EPILOGUES = (
    "",
    "bias",
    "residual",
    "Relu",
    "Gelu",
    "bias Relu",
    "bias Gelu",
    "bias residual Relu",
    "bias residual Gelu",
)
REPLAYS = 1000


class CupyMemory:
    """A device's memory and a stream, by CuPy."""

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        self._made: dict[int, Any] = {}
        self.cupy_stream = cupy.cuda.Stream(non_blocking=True)
        self.stream = int(self.cupy_stream.ptr)

    def buffer(self, spec: TensorSpec) -> Buffer:
        memory = self._cupy.cuda.alloc(max(1, spec.nbytes))  # aligned to 512 bytes by CuPy's pool
        self._made[int(memory.ptr)] = memory
        return Buffer.at(spec, device="cuda:0", pointer=int(memory.ptr), keeps=memory)

    def write(self, buffer: Buffer, array: np.ndarray[Any, Any]) -> None:
        self.cupy_stream.synchronize()
        held = np.ascontiguousarray(array)
        self._made[buffer.pointer].copy_from_host(held.ctypes.data, held.nbytes)

    def read(self, buffer: Buffer) -> np.ndarray[Any, Any]:
        self.cupy_stream.synchronize()
        array = np.empty(buffer.spec.static_shape, buffer.spec.numpy_dtype)
        self._made[buffer.pointer].copy_to_host(array.ctypes.data, array.nbytes)
        return array


@pytest.fixture(scope="module")
def host() -> Host:
    host = Host.this()
    if host.device("cuda:0") is None:
        pytest.skip("this machine has no NVIDIA GPU")
    answer = plugin.collage_targets(host)
    if isinstance(answer, Unsupported):
        pytest.skip(answer.reason)
    return host


@pytest.fixture
def memory(host: Host) -> CupyMemory:
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    cupy.cuda.Device(0).use()
    return CupyMemory(cupy)


@pytest.fixture(scope="module")
def targets(host: Host) -> dict[str, Target]:
    answer = CublasPlugin().collage_targets(host)
    assert not isinstance(answer, Unsupported), answer.reason
    return {target.name: target for target in answer if target.device == "cuda:0"}


def product(
    dtype: str, epilogue: str, *, transpose_a: bool = False, transpose_b: bool = False, batch: tuple[int, ...] = ()
) -> onnx_ir.Model:
    """`[..., 48, 64]` times `[..., 64, 40]`, each perhaps given the other way round."""
    g = GraphBuilder("product")
    element = onnx_ir.DataType[dtype]
    factors = []
    for name, matrix, turned in (("x", (48, 64), transpose_a), ("z", (64, 40), transpose_b)):
        value = g.input(name, *batch, *(matrix[::-1] if turned else matrix), dtype=element)
        rank = len(batch) + 2
        order = [*range(rank - 2), rank - 1, rank - 2]
        factors.append(g.op("Transpose", value, perm=order) if turned else value)
    value = g.op("MatMul", *factors)
    if "bias" in epilogue:
        value = g.op("Add", value, g.input("b", 40, dtype=element))
    if "residual" in epilogue:
        value = g.op("Add", value, g.input("r", *batch, 48, 40, dtype=element))
    if "Relu" in epilogue:
        value = g.op("Relu", value)
    if "Gelu" in epilogue:
        value = g.op("Gelu", value, approximate="tanh")
    return g.model(value)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("epilogue", EPILOGUES)
def test_every_epilogue_type_and_transposition_is_right(
    dtype: str, epilogue: str, host: Host, memory: CupyMemory
) -> None:
    models = {
        f"{a} {b} {batch}": product(dtype, epilogue, transpose_a=a, transpose_b=b, batch=batch)
        for a, b, batch in itertools.product((False, True), (False, True), ((), (3,)))
    }

    conformance = check_plugin(
        Toolchain("cublas", CublasPlugin()), models, host=host, memory=memory, tolerance=TOLERANCES[dtype]
    )

    assert set(conformance.ran) == set(models)


def lowered(model: onnx_ir.Model, target: Target, host: Host, folder: Path) -> tuple[Any, list[Artifact]]:
    """The largest candidate and its variants."""
    candidate = max(proposals(model, target).candidates, key=lambda each: len(each.sub_graph.names))
    function = kernel_function(candidate.sub_graph, "kernel")
    build = BuildContext(
        threads=1,
        effort=2,
        deadline_s=120,
        workspace_limit_bytes=1 << 25,
        seed=0,
        blobs=MemoryBlobs(),
        scratch=folder,
        max_variants=16,
        host=host,
    )
    answer = CublasPlugin().collage_lower(target, function, build)
    assert isinstance(answer, Iterator), answer
    return function, list(answer)


def bound(artifact: Artifact, function: Any, target: Target, memory: CupyMemory, feeds: dict[str, Any]) -> Any:
    run = RunContext(threads=1, device="cuda:0", stream=memory.stream, capture=True)
    kernel = CublasPlugin().collage_load(target, artifact, run)
    assert not isinstance(kernel, Unsupported), kernel.reason
    inputs = [memory.buffer(spec) for spec in function.inputs]
    for buffer in inputs:
        memory.write(buffer, feeds[buffer.spec.name])
    output = memory.buffer(function.outputs[0])
    scratch = TensorSpec(name="workspace", dtype=onnx_ir.DataType.UINT8, shape=(artifact.workspace_bytes,))
    return kernel.bind(inputs, [output], memory.buffer(scratch) if artifact.workspace_bytes else None), output


def test_variants_differ_and_each_keeps_its_limit_and_computes_the_same(
    host: Host, memory: CupyMemory, targets: dict[str, Target], tmp_path: Path
) -> None:
    model = product("FLOAT16", "bias Relu")
    function, variants = lowered(model, targets["cublas@cuda:0"], host, tmp_path)
    feeds = random_inputs(DataflowGraph(model), seed=0)
    right = evaluate(model, feeds).values[function.outputs[0].name].astype(np.float32)

    assert len({each.variant for each in variants}) == len(variants) > 1
    for artifact in variants:
        assert artifact.workspace_bytes <= 1 << 25
        call, output = bound(artifact, function, targets["cublas@cuda:0"], memory, feeds)
        call()
        found = memory.read(output).astype(np.float32)
        np.testing.assert_allclose(found, right, atol=1e-2 * np.abs(right).max(), rtol=0, err_msg=artifact.variant)


def test_tf32_is_off_unless_asked_for(
    host: Host, memory: CupyMemory, targets: dict[str, Target], tmp_path: Path
) -> None:
    tf32 = targets.get("cublas(precision=tf32)@cuda:0")
    if tf32 is None:
        pytest.skip("this GPU has no TF32")
    model = product("FLOAT", "")
    feeds = random_inputs(DataflowGraph(model), seed=0)
    right = feeds["x"].astype(np.float64) @ feeds["z"].astype(np.float64)
    errors = {}
    for target in (targets["cublas@cuda:0"], tf32):
        function, [first, *_] = lowered(model, target, host, tmp_path)
        call, output = bound(first, function, target, memory, feeds)
        call()
        errors[target.name] = np.abs(memory.read(output) - right).max() / np.abs(right).max()

    assert errors["cublas@cuda:0"] < 1e-6
    assert errors["cublas(precision=tf32)@cuda:0"] < 1e-2


def test_a_call_in_a_graph_gives_the_same_bits_a_thousand_times(
    host: Host, memory: CupyMemory, targets: dict[str, Target], tmp_path: Path
) -> None:
    model = product("FLOAT16", "bias residual Gelu", batch=(3,))
    target = targets["cublas@cuda:0"]
    function, variants = lowered(model, target, host, tmp_path)
    feeds = random_inputs(DataflowGraph(model), seed=0)
    for artifact in variants:
        assert artifact.capturable
        call, output = bound(artifact, function, target, memory, feeds)
        call()
        eager = memory.read(output)
        memory.write(output, np.full_like(eager, -1))

        memory.cupy_stream.begin_capture()
        call()
        graph = memory.cupy_stream.end_capture()

        assert (memory.read(output) == -1).all()  # captured, not run
        for _ in range(REPLAYS):
            graph.launch(memory.cupy_stream)
            if artifact.deterministic:
                assert memory.read(output).tobytes() == eager.tobytes(), artifact.variant
