"""A saved package on a machine without nvcc and headers: nothing is offered there, and what was compiled runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx_ir
import pytest

from collage.reference import discrepancy_of, evaluate
from collage.runtime import Executable, loader
from collage.runtime.package import load_package, save_package
from collage.runtime.session import Session
from collage.setup.inputs.random_arrays import random_inputs
from collage_core.contract import BuildContext, Obstacle, Target, Unsupported
from collage_core.fusion import CandidateKernel, Partitioning
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.passes.apply import apply_partitioning
from collage_core.passes.call_sites import call_sites
from collage_core.registry import Registry, Toolchain
from collage_cutlass.plugin import CutlassPlugin
from collage_cutlass.toolkit import MissingToolError
from collage_testing.kit import FakeDevice, fake_providers
from collage_testing.kit.gpu_plugins import HOST

from .cases import FLOAT16, convolution, product
from .emulator import Emulated, FakeCompiler
from .machine import FP16, TARGET, plugin_over, proposals

MODELS: dict[str, tuple[Callable[[], onnx_ir.Model], Target, float]] = {
    "product": (lambda: product("Silu", dtype=FLOAT16, constant=True, bias=(8,)), TARGET, 1e-2),
    "convolution": (lambda: convolution("Relu", inside=True), TARGET, 1e-5),
    "rounded": (lambda: product("Gelu", constant=True, bias=(8,)), FP16, 1e-2),
}


def without_nvcc() -> CutlassPlugin:
    def find() -> FakeCompiler:
        raise MissingToolError("there is no nvcc")

    return CutlassPlugin(find, lambda data, folder: Emulated(data, []))


def whole(graph: DataflowGraph, target: Target) -> CandidateKernel:
    return next(each for each in proposals(graph, target).candidates if each.sub_graph.nodes == graph.all_mask)


@pytest.mark.parametrize("name", MODELS)
def test_what_was_compiled_elsewhere_runs_without_a_compiler(name: str, build: BuildContext, tmp_path: Path) -> None:
    make, target, tolerance = MODELS[name]
    graph = DataflowGraph(make())
    feeds = random_inputs(graph, seed=0)
    [right] = [evaluate(graph.model, feeds).values[str(each.name)] for each in graph.model.graph.outputs]
    partitioned = apply_partitioning(Partitioning(graph, (whole(graph, target),)))
    [site] = call_sites(partitioned)
    made = Toolchain("cutlass", plugin_over(FakeCompiler())).lower(target, site.kernel_function(), build)
    assert not isinstance(made, Unsupported), made.reason
    path = tmp_path / "model.collage"
    artifacts, targets = {site.name: next(made)}, {site.name: target}
    save_package(path, partitioned, artifacts, targets, None, threads=1, model_name=name, model_sha256="")
    toolchain = Toolchain("cutlass", without_nvcc())

    opened = load_package(path)
    session = Session(
        Executable.build(
            opened.plan.model,
            opened.plan.artifacts,
            opened.plan.targets,
            loader(Registry.of(toolchain)),
            threads=1,
            weights=opened.weights,
            host=HOST,
            providers=fake_providers(FakeDevice("cuda:0")),
        )
    )
    found = [session.run(None, feeds)[0] for _ in range(3)]  # warms up, captures, launches

    assert [discrepancy_of(each, right).error < tolerance for each in found] == [True] * 3
    assert [launch.mode for launch in session.launches] == ["graph"]
    assert session.report().substitutes == ()
    offered = toolchain.targets(HOST)
    assert isinstance(offered, Unsupported)
    assert (offered.reason, offered.obstacle) == ("there is no nvcc", Obstacle.NO_LIBRARY)


def test_what_is_not_compiled_yet_is_refused_with_the_reason(build: BuildContext) -> None:
    graph = DataflowGraph(product())
    [site] = call_sites(apply_partitioning(Partitioning(graph, (whole(graph, TARGET),))))

    answer = Toolchain("cutlass", without_nvcc()).lower(TARGET, site.kernel_function(), build)

    assert isinstance(answer, Unsupported)
    assert answer.reason == "there is no nvcc"


def test_the_library_of_another_device_is_asked_for_by_none(build: BuildContext) -> None:
    """An artifact says what it needs of the machine, which core checks before it loads: no compiler is part of it."""
    graph = DataflowGraph(product())
    [site] = call_sites(apply_partitioning(Partitioning(graph, (whole(graph, TARGET),))))
    made = Toolchain("cutlass", plugin_over(FakeCompiler())).lower(TARGET, site.kernel_function(), build)
    assert not isinstance(made, Unsupported), made.reason

    needs = {(each.kind, each.name, each.specifier) for each in next(made).requires}

    assert needs == {("compute_capability", "cuda", ">=9.0,<9.1"), ("driver", "cuda", ">=580")}
