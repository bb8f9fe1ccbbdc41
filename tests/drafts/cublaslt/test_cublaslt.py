"""The draft on cuBLASLt against a recording layer: descriptors real where the library is, the device imitated."""

from __future__ import annotations

import ctypes
import dataclasses
import importlib.util
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir
import pytest

from collage_core.contract import (
    Artifact,
    BuildContext,
    Device,
    Host,
    KernelFunction,
    Requirement,
    RunContext,
    Target,
    Unsupported,
)
from collage_core.fusion import CandidateBounds, kernel_function
from collage_core.ir.dataflow import DataflowGraph
from collage_core.pipeline.proposals import Proposals, propose, target_rule
from collage_core.registry import Toolchain
from collage_core.testing import GraphBuilder, check_plugin, dense, operator_models
from collage_core.testing.kernel_check import MemoryBlobs
from tests.drafts.cublaslt.library import ALGORITHM_BYTES, CublasLt, DataType, Desc, Descriptors, Epilogue, Layout
from tests.drafts.cublaslt.plugin import CublasLtPlugin
from tests.drafts.cublaslt.recorder import STREAM, HostMemory, Notes, Recorder

H100 = Device(name="cuda:0", model="NVIDIA H100", compute_capability="9.0", driver="580.65.06", memory_bytes=80 << 30)
HOST = Host(system="Linux x86_64", cpu="test", physical_cores=1, cpu_flags=frozenset(), memory_bytes=1, devices=(H100,))
TARGET = Target(toolchain="cublaslt", device="cuda:0", fingerprint="cublaslt 130000")
FLOAT16 = onnx_ir.DataType.FLOAT16


def library_path() -> Path | None:
    """The shared library of the wheel `nvidia-cublas`; importing its package loads nothing."""
    found = importlib.util.find_spec("nvidia")
    for folder in (found.submodule_search_locations or ()) if found else ():
        for path in Path(folder).glob("cu*/lib/libcublasLt.so.*"):
            return path
    return None


@pytest.fixture(params=["notes", "library"])
def descriptors(request: pytest.FixtureRequest) -> Descriptors:
    """Descriptors noted down, and those of the real library, which needs no GPU for them."""
    if request.param == "notes":
        return Notes()
    path = library_path()
    if path is None:
        pytest.skip("nvidia-cublas is not installed")
    return CublasLt(str(path))


def models() -> Mapping[str, onnx_ir.Model]:
    some = {name: model for name, model in operator_models().items() if name in ("MatMul", "Gemm", "Relu")}
    some |= {f"dense {activation}": dense(activation=activation) for activation in ("", "Relu", "Gelu")}
    g = GraphBuilder("transposed")
    product = g.op("Gemm", g.input("x", 16, 6), g.weight("w", 16, 8), g.weight("b", 8), transA=1, alpha=0.5)
    some["transposed, scaled"] = g.model(g.op("Gelu", product, approximate="tanh"))
    g = GraphBuilder("rows")
    product = g.op("MatMul", g.input("x", 2, 3, 16), g.weight("w", 16, 8))
    some["more rows, bias first"] = g.model(g.op("Relu", g.op("Add", g.weight("b", 8), product)))
    g = GraphBuilder("inputs")
    x, z = (g.input(name, 16, 16, dtype=FLOAT16) for name in ("x", "z"))
    some["half precision, two inputs"] = g.model(g.op("MatMul", x, z))
    return some


def test_it_keeps_the_contract(descriptors: Descriptors) -> None:
    recorder = Recorder(descriptors)

    conformance = check_plugin(
        Toolchain("cublaslt", CublasLtPlugin(lambda: recorder)), models(), host=HOST, memory=HostMemory(recorder)
    )

    assert set(conformance.refused) == {"Relu"}  # no product before it
    assert set(conformance.ran) == set(models()) - {"Relu"}
    assert conformance.ran["dense Relu"] == conformance.ran["more rows, bias first"] == 3
    assert conformance.ran["transposed, scaled"] == 2
    assert recorder.calls.count("create") == 1


# What is proposed


def proposals(model: onnx_ir.Model) -> Proposals:
    toolchain = Toolchain("cublaslt", CublasLtPlugin(Recorder))
    return propose(target_rule(toolchain, TARGET, {}), DataflowGraph(model), CandidateBounds.preset("quick"))


def reasons(*values: onnx_ir.Value, builder: GraphBuilder) -> str:
    return "; ".join(proposals(builder.model(*values)).refusals.values())


def test_a_product_is_offered_alone_with_bias_and_with_activation() -> None:
    found = proposals(dense(activation="Relu"))

    assert {candidate.sub_graph.names: candidate.sub_graph.label for candidate in found.candidates} == {
        ("matmul_0",): "cublaslt.matmul",
        ("matmul_0", "add_0"): "cublaslt.matmul",
        ("matmul_0", "add_0", "relu_0"): "cublaslt.matmul",
    }
    epilogues = [dict(candidate.sub_graph.attributes)["epilogue"] for candidate in found.candidates]
    assert sorted(epilogues) == ["BIAS", "DEFAULT", "RELU|BIAS"]


def test_onnxs_default_gelu_is_another_function_than_the_librarys() -> None:
    assert max(len(candidate.sub_graph.names) for candidate in proposals(dense(activation="Gelu")).candidates) == 2


def test_a_batch_of_products_is_refused() -> None:
    g = GraphBuilder()
    assert "is a batch of products" in reasons(g.op("MatMul", g.input("x", 2, 4, 8), g.input("z", 2, 8, 4)), builder=g)


def test_a_bias_along_the_rows_is_refused() -> None:
    g = GraphBuilder()
    product = g.op("MatMul", g.input("x", 4, 8), g.weight("w", 8, 4))
    found = proposals(g.model(g.op("Add", product, g.weight("b", 4, 1))))

    assert [candidate.sub_graph.names for candidate in found.candidates] == [("matmul_0",)]
    assert "the bias 'b' is [4, 1]; it adds one along the 4 columns" in found.refusals[1]


def test_a_product_read_elsewhere_takes_no_bias_along() -> None:
    g = GraphBuilder()
    product = g.op("MatMul", g.input("x", 4, 8), g.weight("w", 8, 4))
    found = proposals(g.model(g.op("Add", product, g.weight("b", 4)), g.op("Neg", product)))

    assert [candidate.sub_graph.names for candidate in found.candidates] == [("matmul_0",)]
    assert "matmul_0, add_0 are read outside" in found.refusals[1]


def test_integers_are_refused() -> None:
    g = GraphBuilder()
    x = g.input("x", 4, 8, dtype=onnx_ir.DataType.INT32)
    assert "operands are INT32" in reasons(g.op("MatMul", x, g.constant("w", np.ones((8, 4), np.int32))), builder=g)


# Lowering


def function(model: onnx_ir.Model | None = None) -> KernelFunction:
    """The largest candidate of a model."""
    candidates = proposals(model or dense(m=4, n=8, k=16, activation="Relu")).candidates
    return kernel_function(max(candidates, key=lambda c: len(c.sub_graph.names)).sub_graph, "kernel")


@pytest.fixture
def build(tmp_path: Path) -> BuildContext:
    return BuildContext(
        threads=1,
        effort=1,
        deadline_s=60,
        workspace_limit_bytes=1 << 24,
        seed=0,
        blobs=MemoryBlobs(),
        scratch=tmp_path,
        max_variants=3,
        host=HOST,
    )


def lowered(recorder: Recorder, build: BuildContext, what: KernelFunction | None = None) -> list[Artifact]:
    answer = CublasLtPlugin(lambda: recorder).collage_lower(TARGET, what or function(), build)
    assert isinstance(answer, Iterator), answer
    return list(answer)


def test_each_algorithm_is_a_variant_with_its_own_scratch_memory(build: BuildContext) -> None:
    recorder = Recorder()

    made = lowered(recorder, build)

    assert recorder.asked == [3]  # as many as core will try, not the library's most
    assert [artifact.workspace_bytes for artifact in made] == [1 << 20, 0, 1 << 12]
    assert len({artifact.variant for artifact in made}) == 3
    assert all(len(artifact.files["algorithm.bin"]) == ALGORITHM_BYTES for artifact in made)
    assert made[0].requires == (
        Requirement(kind="compute_capability", name="cuda", specifier="==9.0"),
        Requirement(kind="device", name="NVIDIA H100"),
    )


def test_algorithms_that_want_more_scratch_memory_than_allowed_are_not_found(build: BuildContext) -> None:
    made = lowered(Recorder(), dataclasses.replace(build, workspace_limit_bytes=1 << 13))

    assert [artifact.workspace_bytes for artifact in made] == [0, 1 << 12]


def test_weights_are_asked_for_and_not_embedded(build: BuildContext) -> None:
    what = function()

    artifact = lowered(Recorder(), build, what)[0]

    assert set(artifact.constants.values()) == set(what.constants.values())
    assert sum(map(len, artifact.files.values())) == ALGORITHM_BYTES


def test_the_chosen_algorithm_is_made_again_without_asking(build: BuildContext) -> None:
    chosen = lowered(Recorder(), build)[2]
    recorder = Recorder()

    [again] = lowered(recorder, dataclasses.replace(build, variant=chosen.variant))

    assert again == chosen
    assert recorder.asked == []


def test_without_the_cache_the_chosen_algorithm_is_found_among_as_many(build: BuildContext) -> None:
    chosen = lowered(Recorder(), build)[2]

    [again] = lowered(Recorder(), dataclasses.replace(build, variant=chosen.variant, blobs=MemoryBlobs()))

    assert again == chosen


def test_algorithms_remembered_for_another_device_are_not_used(build: BuildContext) -> None:
    lowered(Recorder(), build)
    other = dataclasses.replace(HOST, devices=(dataclasses.replace(H100, compute_capability="10.0"),))
    recorder = Recorder()

    made = lowered(recorder, dataclasses.replace(build, host=other))

    assert recorder.asked == [3]
    assert made[0].requires[0].specifier == "==10.0"


def test_a_row_major_product_is_a_column_major_one_of_the_transposed(
    build: BuildContext, descriptors: Descriptors
) -> None:
    g = GraphBuilder()
    gemm = g.op("Gemm", g.input("x", 4, 16), g.weight("w", 8, 16), g.weight("b", 8), transB=1)
    recorder = Recorder(descriptors)
    seen: list[Any] = []
    heuristic = recorder.heuristic

    def spy(handle: int, matmul: Any, preference: int, count: int) -> Any:
        seen.append(matmul)
        return heuristic(handle, matmul, preference, count)

    recorder.heuristic = spy  # type: ignore[method-assign]
    lowered(recorder, build, function(g.model(gemm)))

    [matmul] = seen
    assert [recorder.get(matmul.desc, each) for each in (Desc.TRANSA, Desc.TRANSB)] == [1, 0]
    assert Epilogue(recorder.get(matmul.desc, Desc.EPILOGUE)) == Epilogue.BIAS
    shapes = [
        tuple(recorder.get(layout, each) for each in (Layout.TYPE, Layout.ROWS, Layout.COLS, Layout.LD))
        for layout in (matmul.a_layout, matmul.b_layout, matmul.d_layout)
    ]
    assert shapes == [
        (DataType.R_32F, 16, 8, 16),
        (DataType.R_32F, 16, 4, 16),
        (DataType.R_32F, 8, 4, 8),
    ]


# Loading and running


def test_a_call_enqueues_and_nothing_happens_before_the_stream_comes_to_it(build: BuildContext) -> None:
    recorder = Recorder()
    plugin, what, memory = CublasLtPlugin(lambda: recorder), function(), HostMemory(recorder)
    artifact = lowered(recorder, build, what)[1]
    names = {content: name for name, content in what.constants.items()}
    weights = {}
    for content in artifact.constants.values():
        value = what.constant(names[content])
        buffer = memory.buffer(dataclasses.replace(what.inputs[0], name="w", shape=value.shape))
        memory.write(buffer, value)
        weights[content] = buffer
    run = RunContext(threads=1, device="cuda:0", stream=STREAM, placed=weights)
    kernel = plugin.collage_load(artifact, run)
    assert not isinstance(kernel, Unsupported)
    x, y = memory.buffer(what.inputs[0]), memory.buffer(what.outputs[0])
    memory.write(x, np.ones((4, 16), np.float32))
    memory.write(y, np.full((4, 8), -1, np.float32))
    array = np.ctypeslib.as_array((ctypes.c_float * 32).from_address(y.pointer))

    kernel.bind([x], [y], None)()

    assert (array == -1).all()
    recorder.wait(STREAM)
    assert (array >= 0).all()
    assert (array > 0).any()


@pytest.mark.parametrize(
    ("artifact", "run", "reason"),
    [
        ({}, {"stream": None}, "it enqueues on a stream, and none was given"),
        ({"version": 120000}, {}, "its algorithm is one of cuBLASLt 120000, this is 130000"),
        ({}, {}, "was not supplied"),
    ],
)
def test_what_cannot_run_is_refused_when_loaded(
    artifact: dict[str, int], run: dict[str, Any], reason: str, build: BuildContext
) -> None:
    recorder = Recorder()
    made = lowered(recorder, build)[0]
    made = dataclasses.replace(made, metadata={**json.loads(json.dumps(made.metadata)), **artifact})

    answer = CublasLtPlugin(lambda: recorder).collage_load(
        made, RunContext(threads=1, device="cuda:0", **{"stream": STREAM, **run})
    )

    assert isinstance(answer, Unsupported)
    assert reason in answer.reason


def test_a_machine_without_the_library_or_without_a_device_is_told() -> None:
    def missing() -> Recorder:
        raise OSError("libcublasLt.so.13: cannot open shared object file")

    without_library = CublasLtPlugin(missing).collage_targets(HOST)
    without_device = CublasLtPlugin(Recorder).collage_targets(dataclasses.replace(HOST, devices=()))

    assert isinstance(without_library, Unsupported)
    assert "pip install nvidia-cublas" in without_library.reason
    assert isinstance(without_device, Unsupported)
    assert "no CUDA device" in without_device.reason


def test_the_real_library_without_a_gpu_says_so_when_it_is_first_needed(build: BuildContext) -> None:
    path = library_path()
    if path is None:
        pytest.skip("nvidia-cublas is not installed")
    if Host.this().devices:
        pytest.skip("this machine has a GPU")

    answer = CublasLtPlugin(lambda: CublasLt(str(path))).collage_lower(TARGET, function(), build)

    assert answer == Unsupported("cublasLtCreate: the library was not initialized")
