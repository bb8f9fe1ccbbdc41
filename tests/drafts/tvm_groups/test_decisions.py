"""What the TVM draft decides without TVM: groups, arrangements, what is compiled when, and what is remembered."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx_ir
import pytest

from collage_core.candidates.proposals import propose, target_rule
from collage_core.contract import Artifact, BuildContext, Host, Joins, KernelFunction, Target, Unsupported
from collage_core.fusion import CandidateBounds, SubGraph, kernel_function
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.registry import Toolchain
from collage_testing import GraphBuilder, chain, dense
from collage_testing.kit.contexts import MemoryBlobs, build_context
from tests.drafts.tvm_groups.lower import lower
from tests.drafts.tvm_groups.plugin import plugin
from tests.drafts.tvm_groups.schedules import Schedule, processor_level

TARGET = Target(toolchain="tvm", fingerprint="tvm 1", joins=Joins.NATIVE)
V3 = frozenset({"avx2", "fma", "bmi1", "bmi2", "f16c", "movbe"})
HOST = Host(system="Linux x86_64", cpu="test", physical_cores=1, cpu_flags=V3, memory_bytes=1)


def groups(model: onnx_ir.Model) -> tuple[set[tuple[str, ...]], str]:
    """What is offered of a model, and all refusals."""
    found = propose(
        target_rule(Toolchain("tvm", plugin), TARGET, {}), DataflowGraph(model), CandidateBounds.preset("default")
    )
    return {candidate.sub_graph.names for candidate in found.candidates}, "; ".join(found.refusals.values())


def test_neighbouring_element_wise_operators_are_offered_in_every_combination() -> None:
    offered, _ = groups(chain("Relu", "Exp", "Neg"))

    assert offered == {
        ("relu_0",),
        ("exp_0",),
        ("neg_0",),
        ("relu_0", "exp_0"),
        ("exp_0", "neg_0"),
        ("relu_0", "exp_0", "neg_0"),
    }


def test_a_product_is_left_to_others_and_its_epilogue_is_offered() -> None:
    offered, refusals = groups(dense(activation="Relu"))

    assert offered == {("add_0",), ("relu_0",), ("add_0", "relu_0")}
    assert refusals == "no predicate takes MatMul"


@pytest.mark.parametrize(
    ("dtype", "shape", "reason"),
    [
        (onnx_ir.DataType.FLOAT16, (3, 4), "'x' is FLOAT16; compiles float32 only"),
        (onnx_ir.DataType.FLOAT, (0, 4), "'x' has no elements"),
    ],
)
def test_what_it_would_compute_otherwise_is_refused(
    dtype: onnx_ir.DataType, shape: tuple[int, ...], reason: str
) -> None:
    g = GraphBuilder()

    offered, refusals = groups(g.model(g.op("Neg", g.input("x", *shape, dtype=dtype))))

    assert (offered, refusals) == (set(), reason)


def test_the_processor_level_follows_the_machine_that_is_built_for() -> None:
    assert processor_level(HOST) == "x86-64-v3"
    assert processor_level(dataclasses.replace(HOST, cpu_flags=frozenset({"sse2"}))) == ""


# Compiling


class Recorder:
    """Takes the compiler's place: says what was compiled, and a clock says how long it took."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.compiled: list[str] = []
        self.now = 0.0
        self._seconds = seconds

    def __call__(self, function: KernelFunction, schedule: Schedule, level: str, folder: Path) -> bytes:
        self.compiled.append(schedule.name)
        self.now += self._seconds
        return f"{schedule.name} for {level}".encode()

    def clock(self) -> float:
        return self.now


def group(*shape: int, seed: int = 0) -> KernelFunction:
    g = GraphBuilder(seed=seed)
    value = g.op("Mul", g.op("Add", g.input("x", *shape), g.weight("row", shape[-1])), g.constant("two", np.float32(2)))
    graph = DataflowGraph(g.model(value))
    return kernel_function(SubGraph(graph, graph.all_mask), "group")


@pytest.fixture
def build(tmp_path: Path) -> BuildContext:
    return build_context(tmp_path, tuning_s=30, workspace_limit_bytes=0, max_variants=8, host=HOST)


def variants(recorder: Recorder, build: BuildContext, function: KernelFunction | None = None) -> Iterator[Artifact]:
    answer = lower(function or group(6, 96), build, "0.27.0", recorder, recorder.clock)
    assert not isinstance(answer, Unsupported), answer.reason
    return answer


def test_each_arrangement_is_compiled_when_it_is_asked_for(build: BuildContext) -> None:
    recorder = Recorder()
    made = variants(recorder, build)

    assert recorder.compiled == []
    assert next(made).variant == "v8"
    assert recorder.compiled == ["v8"]
    assert [artifact.variant for artifact in made] == ["v32", "plain"]


def test_as_many_are_made_as_core_will_try(build: BuildContext) -> None:
    recorder = Recorder()

    list(variants(recorder, dataclasses.replace(build, max_variants=2)))

    assert recorder.compiled == ["v8", "v32"]


@pytest.mark.guards(
    "compiling another variant would not end in time", "it is not begun; those made are measured", area="toolchains"
)
def test_what_would_not_be_done_in_time_is_not_begun(build: BuildContext) -> None:
    slow, hopeless = Recorder(seconds=12.0), Recorder(seconds=100.0)

    list(variants(slow, build))
    list(variants(hopeless, dataclasses.replace(build, blobs=MemoryBlobs())))

    assert slow.compiled == ["v8", "v32"]  # 12 s, 24 s, and a third would end at 36 s of 30 s
    assert hopeless.compiled == ["v8"]


def test_the_winner_is_taken_from_the_cache_for_a_call_site_with_other_weights(build: BuildContext) -> None:
    list(variants(Recorder(), build))
    recorder = Recorder()

    [again] = variants(recorder, dataclasses.replace(build, variant="v32"), group(6, 96, seed=1))

    assert again.variant == "v32"
    assert recorder.compiled == []


def test_what_was_compiled_for_another_processor_is_not_used(build: BuildContext) -> None:
    list(variants(Recorder(), build))
    recorder = Recorder()
    older = dataclasses.replace(HOST, cpu_flags=frozenset())

    made = list(variants(recorder, dataclasses.replace(build, host=older)))

    assert recorder.compiled == ["v4", "v16", "plain"]
    assert {each.kind for artifact in made for each in artifact.requires} == {"library"}


def test_a_variant_it_does_not_have_is_refused(build: BuildContext) -> None:
    answer = lower(group(3, 7), dataclasses.replace(build, variant="v8"), "0.27.0", Recorder())

    assert answer == Unsupported("it has no variant 'v8' of this group")


def test_an_artifact_says_what_it_needs(build: BuildContext) -> None:
    function = group(6, 96)

    artifact = next(variants(Recorder(), build, function))

    assert {(each.kind, each.name, each.specifier) for each in artifact.requires} == {
        ("library", "apache-tvm", "==0.27.0"),
        *(("isa", flag, "") for flag in V3),
    }
    assert list(artifact.constants.values()) == [function.constants["row"]]  # the scalar is a literal


def test_a_group_whose_inner_values_are_read_again_and_again_is_refused(build: BuildContext) -> None:
    g = GraphBuilder()
    value = g.input("x", 4)
    for _ in range(9):
        value = g.op("Mul", value, value)
    graph = DataflowGraph(g.model(value))

    answer = lower(kernel_function(SubGraph(graph, graph.all_mask), "k"), build, "0.27.0", Recorder())

    assert isinstance(answer, Unsupported)
    assert "511 operations per element" in answer.reason


@pytest.mark.guards(
    "a toolchain's library, linker or device is missing",
    "its targets are refused, with what to install",
    area="toolchains",
)
def test_without_tvm_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "tvm", None)

    answer = plugin.collage_targets(HOST)

    assert isinstance(answer, Unsupported)
    assert "pip install apache-tvm" in answer.reason


def test_importing_the_draft_imports_no_library() -> None:
    import subprocess
    import sys

    script = "import sys, tests.drafts.tvm_groups.plugin; print(sorted(n for n in sys.modules if n.startswith('tvm')))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
