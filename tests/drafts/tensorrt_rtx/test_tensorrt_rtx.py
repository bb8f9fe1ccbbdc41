"""The draft on TensorRT for RTX: parsing and building without a GPU, real where installed, else as recorded."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import onnx_ir
import pytest

from collage_core.contract import (
    Artifact,
    Buffer,
    BuildContext,
    Device,
    Host,
    KernelFunction,
    Requirement,
    RunContext,
    SizedKernel,
    Target,
    TensorSpec,
    Unsupported,
)
from collage_core.errors import KernelError
from collage_core.fusion import SubGraph, kernel_function
from collage_core.ir.dataflow import DataflowGraph
from collage_core.registry import Toolchain
from collage_core.runtime.requirements import check_requirements
from collage_core.testing import GraphBuilder, check_plugin, dense, mnist, operator_models
from collage_core.testing.kernel_check import MemoryBlobs
from tests.drafts.tensorrt_rtx import recorded
from tests.drafts.tensorrt_rtx.plugin import TensorRtRtxPlugin, find_library

RTX = Device(
    name="cuda:0", model="NVIDIA RTX 4090", compute_capability="8.9", driver="580.65.06", memory_bytes=24 << 30
)
HOST = Host(system="Linux x86_64", cpu="test", physical_cores=1, cpu_flags=frozenset(), memory_bytes=1, devices=(RTX,))
TARGET = Target(toolchain="tensorrt_rtx", device="cuda:0", fingerprint="tensorrt_rtx test")
NO_GPU = not Host.this().devices


@pytest.fixture(params=["recorded", "library"])
def library(request: pytest.FixtureRequest) -> ModuleType | Any:
    if request.param == "recorded":
        return recorded
    try:
        return find_library()
    except ImportError as error:
        pytest.skip(f"TensorRT for RTX is not installed: {error}")


@pytest.fixture
def build(tmp_path: Path) -> BuildContext:
    return BuildContext(
        threads=1,
        effort=0,
        deadline_s=60,
        workspace_limit_bytes=1 << 24,
        seed=0,
        blobs=MemoryBlobs(),
        scratch=tmp_path,
        host=HOST,
    )


def regions() -> list[KernelFunction]:
    """Three of MNIST: a convolution with what follows it, a pooling, the product at the end."""
    graph = DataflowGraph(mnist())
    cuts = (("conv_0", "add_0", "relu_0"), ("maxpool_0",), ("reshape_0", "matmul_0", "add_2"))
    masks = [sum(1 << graph.index_of(name) for name in names) for names in cuts]
    return [kernel_function(SubGraph(graph, mask), f"region_{number}") for number, mask in enumerate(masks)]


def lowered(library: Any, function: KernelFunction, build: BuildContext, target: Target = TARGET) -> Artifact:
    answer = TensorRtRtxPlugin(lambda: library).collage_lower(target, function, build)
    assert isinstance(answer, Iterator), answer
    [artifact] = answer
    return artifact


def test_three_regions_are_parsed_and_built_ahead_of_time(library: Any, build: BuildContext) -> None:
    made = [lowered(library, function, build) for function in regions()]

    engines = [artifact.files["engine.bin"] for artifact in made]
    assert len(set(engines)) == 3
    assert all(len(engine) > 32 for engine in engines)
    assert [artifact.metadata["outputs"] for artifact in made] == [["relu_0"], ["maxpool_0"], ["add_2"]]


@pytest.mark.skipif(not NO_GPU, reason="this machine has a GPU")
def test_it_keeps_the_contract_as_far_as_a_machine_without_a_gpu_can_tell(library: Any) -> None:
    models = {name: model for name, model in operator_models().items() if name in ("Gemm", "Conv", "Relu")}
    nonzero = "NonZero, its shape not known before"

    conformance = check_plugin(
        Toolchain("tensorrt_rtx", TensorRtRtxPlugin(lambda: library)),
        {**models, "dense": dense(activation="Relu"), nonzero: operator_models()[nonzero]},
        host=HOST,
        runs=False,
    )

    assert set(conformance.ran) == {*models, "dense"}
    assert "NonZero" in conformance.refused[nonzero]


def test_the_importers_opinion_names_every_refused_node_and_no_other(library: Any) -> None:
    g = GraphBuilder()
    x = g.op("Relu", g.input("x", 4, 4, 4))
    model = g.model(g.op("Det", x), g.op("Exp", x), g.op("Det", g.op("Neg", x)))
    graph = DataflowGraph(model)

    opinion = TensorRtRtxPlugin(lambda: library).collage_query(
        TARGET, kernel_function(SubGraph(graph, graph.all_mask), "model")
    )

    assert opinion is not None
    assert set(opinion) == {"det_0", "det_1"}
    assert opinion["det_0"].startswith("Det: ")


def test_an_engine_is_built_once_and_then_remembered(build: BuildContext) -> None:
    before = recorded.Builder.builds
    first = lowered(recorded, regions()[0], build)
    second = lowered(recorded, regions()[0], build)

    assert first == second
    assert recorded.Builder.builds == before + 1


def test_engines_hold_weights_so_equal_structure_is_not_enough_to_share_one(build: BuildContext) -> None:
    one, other = (GraphBuilder(seed=seed) for seed in (0, 1))
    made = []
    for g in (one, other):
        graph = DataflowGraph(g.model(g.op("MatMul", g.input("x", 4, 16), g.weight("w", 16, 8))))
        made.append(lowered(recorded, kernel_function(SubGraph(graph, graph.all_mask), "k"), build))

    assert made[0].files != made[1].files


def test_another_device_is_built_for_anew_and_requires_itself(build: BuildContext) -> None:
    other = dataclasses.replace(HOST, devices=(dataclasses.replace(RTX, compute_capability="12.0"),))

    here, there = (lowered(recorded, regions()[0], dataclasses.replace(build, host=host)) for host in (HOST, other))

    assert here.files != there.files
    assert Requirement(kind="compute_capability", name="cuda", specifier="==12.0") in there.requires
    needs = [each for each in there.requires if each.kind != "library"]
    assert check_requirements(needs, other, device="cuda:0")
    refused = check_requirements(needs, HOST, device="cuda:0")
    assert isinstance(refused, Unsupported)
    assert refused.reason == "it needs compute capability ==12.0, NVIDIA RTX 4090 has 8.9"


def test_a_device_it_does_not_build_for_is_refused_with_those_it_does(library: Any) -> None:
    h200 = dataclasses.replace(RTX, model="NVIDIA H200", compute_capability="9.0")

    answer = TensorRtRtxPlugin(lambda: library).collage_targets(dataclasses.replace(HOST, devices=(h200,)))

    assert isinstance(answer, Unsupported)
    assert "8.9, 12.0" in answer.reason
    assert answer.reason.endswith("NVIDIA H200 has 9.0")


def test_without_the_library_it_says_what_to_install() -> None:
    def missing() -> ModuleType:
        raise ImportError("No module named 'tensorrt_rtx'")

    answer = TensorRtRtxPlugin(missing).collage_targets(HOST)

    assert isinstance(answer, Unsupported)
    assert "pip install tensorrt-rtx-cu13-libs" in answer.reason


def test_importing_the_draft_imports_no_library() -> None:
    script = (
        "import sys, tests.drafts.tensorrt_rtx.plugin, tests.drafts.tvm_groups.plugin\n"
        "print(sorted(name for name in sys.modules if name.startswith(('tensorrt', 'tvm', 'nvidia'))))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


# Loading


@pytest.mark.skipif(not NO_GPU, reason="this machine has a GPU")
def test_an_engine_cannot_be_read_without_a_device_and_the_library_says_why(library: Any, build: BuildContext) -> None:
    artifact = lowered(library, regions()[0], build)

    answer = TensorRtRtxPlugin(lambda: library).collage_load(artifact, RunContext(threads=1, device="cuda:0", stream=7))

    assert isinstance(answer, Unsupported)
    assert "CUDA driver version is insufficient" in answer.reason


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> list[recorded.Engine]:
    """The recorded library finds a device; gives the engines it reads."""
    engines: list[recorded.Engine] = []
    monkeypatch.setattr(recorded.Runtime, "has_device", True)
    monkeypatch.setattr(recorded.Runtime, "engines", engines)
    return engines


def place(name: str, pointer: int, *shape: int) -> Buffer:
    spec = TensorSpec(name=name, dtype=onnx_ir.DataType.FLOAT, shape=shape)
    return Buffer.at(spec, device="cuda:0", pointer=pointer)


def test_scratch_memory_is_known_once_the_engine_is_read_on_its_device(
    build: BuildContext, device: list[recorded.Engine]
) -> None:
    artifact = lowered(recorded, regions()[0], build)
    kernel = TensorRtRtxPlugin(lambda: recorded).collage_load(
        artifact, RunContext(threads=1, device="cuda:0", stream=7)
    )

    assert artifact.workspace_bytes == 0
    assert isinstance(kernel, SizedKernel)
    assert kernel.workspace_bytes == recorded.WORKSPACE_BYTES
    with pytest.raises(KernelError, match="needs 8192512 bytes of workspace"):
        kernel.bind([place("x", 256, 2)], [place("y", 512, 2)], None)


def test_a_call_is_one_enqueue_on_the_stream_given(build: BuildContext, device: list[recorded.Engine]) -> None:
    [function] = regions()[:1]
    kernel = TensorRtRtxPlugin(lambda: recorded).collage_load(
        lowered(recorded, function, build), RunContext(threads=1, device="cuda:0", stream=7)
    )
    assert not isinstance(kernel, Unsupported)
    x, y = (place(spec.name, pointer, 2) for spec, pointer in ((function.inputs[0], 256), (function.outputs[0], 512)))

    call = kernel.bind([x], [y], place("workspace", 1 << 20, recorded.WORKSPACE_BYTES // 4))
    call()
    call()

    [context] = device[0].contexts
    assert context.calls == [
        ("memory", 1 << 20, recorded.WORKSPACE_BYTES),
        (function.inputs[0].name, 256),
        (function.outputs[0].name, 512),
        ("execute", 7),
        ("execute", 7),
    ]
