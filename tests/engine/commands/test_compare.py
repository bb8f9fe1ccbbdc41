"""What `compare` holds a package to, over packages of the reference's kernels, in this process."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir
import pytest

from collage.commands.compare import compare
from collage.prepare.steps import prepare
from collage.reference.plugin import ReferencePlugin
from collage.runtime.package import save_package
from collage_core.contract import Artifact, KernelFunction, Target
from collage_core.fusion import Partitioning
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.io.model_io import load_model, save_model
from collage_core.passes.apply import apply_partitioning
from collage_core.passes.call_sites import call_sites
from collage_testing.graphs import GraphBuilder
from tests.engine.exploring import kernel

REFERENCE = Target(toolchain="reference", fingerprint="onnx")


def classifier(folder: Path) -> Path:
    """`relu_0` of a product, `gemm_1` for logits far apart, and the probabilities of four classes."""
    g = GraphBuilder(seed=1)
    value = g.op("Relu", g.op("Gemm", g.input("x", 1, 8), g.weight("w0", 8, 16), g.weight("b0", 16)))
    value = g.op("Gemm", value, g.weight("w1", 16, 4), g.weight("b1", 4))
    model = g.model(g.op("Softmax", g.op("Mul", value, g.constant("ten", np.float32(10.0)))))
    save_model(model, folder / "model.onnx")
    return folder / "model.onnx"


def packaged(model: Path, folder: Path, *, off_by: float = 0.0, record: Any = None, target: Target = REFERENCE) -> Path:
    """A package whose second kernel's weights are off by a factor."""
    graph = DataflowGraph(prepare(load_model(model)))
    parts = [kernel(graph, target, "gemm_0", "relu_0"), kernel(graph, target, "gemm_1", "mul_0", "softmax_0")]
    partitioned = apply_partitioning(Partitioning(graph, tuple(parts)))
    artifacts: dict[str, Artifact] = {}
    for site in call_sites(partitioned):
        function = site.kernel_function()
        if off_by and "gemm_1" in site.nodes:
            function = KernelFunction(
                name=function.name,
                model=_scaled(function.model, 1 + off_by),
                inputs=function.inputs,
                outputs=function.outputs,
            )
        [artifacts[site.name]] = ReferencePlugin().collage_lower(function)
    path = folder / "plan.collage"
    targets = dict.fromkeys(artifacts, target)
    save_package(path, partitioned, artifacts, targets, record, threads=1, model_name="m", model_sha256="")
    return path


def _scaled(model: onnx_ir.Model, factor: float) -> onnx_ir.Model:
    for value in model.graph.initializers.values():
        assert value.const_value is not None
        value.const_value = onnx_ir.tensor(value.const_value.numpy() * np.float32(factor), name=value.name)
    return model


@pytest.mark.parametrize(("off_by", "passes"), [(0.0, True), (1e-7, True), (1e-5, False), (2e-3, False)])
def test_a_package_of_exact_kernels_is_held_to_what_exact_kernels_keep(
    off_by: float, passes: bool, tmp_path: Path
) -> None:
    model = classifier(tmp_path)

    report = compare(model, packaged(model, tmp_path, off_by=off_by))

    assert report.passed is passes
    assert report.rtol == 1e-5
    assert [value.place for value in report.values] == ["boundary", "output"]


@pytest.mark.parametrize(
    ("record", "rtol"),
    [
        ({"max_error": 1e-6}, 1e-5),
        ({"max_error": 4e-5}, 2e-4),
        ({"max_error": 0.0, "regions": [{"error": 1e-5}, {"error": 6e-5}]}, 3e-4),
        ({"max_error": 9e-4}, 1e-3),
        ({"max_error": 4e-3}, 4e-3),  # made with a larger --rtol
    ],
)
def test_a_package_may_be_a_few_times_as_wrong_as_it_was_when_it_was_made(
    record: Any, rtol: float, tmp_path: Path
) -> None:
    model = classifier(tmp_path)

    assert compare(model, packaged(model, tmp_path, record=record)).rtol == pytest.approx(rtol)


def test_a_package_of_inexact_kernels_is_held_to_what_it_was_allowed(tmp_path: Path) -> None:
    model = classifier(tmp_path)
    inexact = dataclasses.replace(REFERENCE, exact=False)
    record = {"max_error": 1e-3, "max_error_allowed": 0.02}

    report = compare(model, packaged(model, tmp_path, off_by=1e-3, record=record, target=inexact))

    assert report.rtol == 0.02
    assert report.passed


def test_the_users_own_tolerance_holds_whatever_the_package_showed(tmp_path: Path) -> None:
    model = classifier(tmp_path)
    package = packaged(model, tmp_path, off_by=5e-4, record={"max_error": 1e-6})

    assert compare(model, package, rtol=0.01).passed
    assert not compare(model, package, rtol=1e-4).passed


def test_an_absolute_difference_passes_by_the_scale_of_the_logits_and_not_of_the_probabilities(tmp_path: Path) -> None:
    model = classifier(tmp_path)
    package = packaged(model, tmp_path, off_by=1e-3)
    [_, output] = compare(model, package).values

    # probabilities are at most 1, these logits larger
    assert not compare(model, package, rtol=1e-9, atol=output.error * 1.5).values[-1].passed
    assert compare(model, package, rtol=1e-9, atol=10.0).passed
