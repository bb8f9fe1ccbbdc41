"""`precision=fp16` and `bf16`: what is rounded, where and by whom, carried out by the emulation."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir
import pytest

from collage.reference import Evaluation, evaluate
from collage.setup.inputs.random_arrays import random_inputs
from collage_core.contract import PRECISIONS, Artifact, BuildContext, Target, Unsupported
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.operators.narrowing import Narrowed, narrowed_products
from collage_core.registry import Toolchain
from collage_testing import GraphBuilder
from collage_testing.kit import FakeDevice
from collage_testing.kit.gpu_plugins import H100, HOST
from collage_testing.kit.gpu_plugins import scaled_weight as weight
from collage_testing.kit.kernel_check import KernelCheck

from .cases import convolution, product
from .checking import check_numbers
from .emulator import FakeCompiler
from .machine import BF16, FP16, TF32, largest, plugin_over, proposals


def square() -> onnx_ir.Model:
    """One input as both factors."""
    g = GraphBuilder("square")
    x = g.input("x", 8, 8)
    return g.model(g.op("Relu", g.op("MatMul", x, x)))


def skip() -> onnx_ir.Model:
    """One input as a factor and as what is added."""
    g = GraphBuilder("skip")
    x = g.input("x", 8, 8)
    return g.model(g.op("Relu", g.op("Add", g.op("MatMul", x, weight(g, "w", 8, 8)), x)))


def constant_image() -> onnx_ir.Model:
    """The image is a weight and the filter is not."""
    g = GraphBuilder("constant_image")
    return g.model(g.op("Relu", g.op("Conv", weight(g, "x", 2, 8, 6, 5), g.input("w", 16, 8, 3, 3))))


def pixel() -> onnx_ir.Model:
    """An image that is not turned, having one pixel, and is rounded nevertheless."""
    g = GraphBuilder("pixel")
    return g.model(g.op("Conv", g.input("x", 2, 8, 1, 1), weight(g, "w", 16, 8, 1, 1)))


# inputs that are the model's own, so that what the kernel reads is known to the reference; what it takes, as calls
MODELS: dict[str, tuple[Any, list[str]]] = {
    "a weight": (lambda: product("Silu", constant=True, bias=(8,)), ["narrow", "gemm"]),
    "two inputs": (lambda: product("Gelu", a=(2, 3, 16), b=(2, 16, 8)), ["narrow", "narrow", "gemm"]),
    "square": (square, ["narrow", "gemm"]),
    "an input that is added, too": (skip, ["narrow", "gemm"]),
    "convolution": (lambda: convolution("Relu", inside=True), ["turn narrow", "conv", "turn"]),
    "an image that is a weight": (constant_image, ["turn narrow", "conv", "turn"]),
    "one pixel": (pixel, ["narrow", "conv"]),
}


@pytest.mark.parametrize("target", [FP16, BF16], ids=lambda target: target.name)
@pytest.mark.parametrize("name", MODELS)
def test_factors_are_rounded_and_all_else_is_float32(name: str, target: Target, tmp_path: Path) -> None:
    """Held to the model that says what is rounded, with the tolerance of float32."""
    make, wanted = MODELS[name]
    model, calls = make(), list[str]()
    graph = DataflowGraph(model)
    [candidate] = [each for each in proposals(graph, target).candidates if each.sub_graph.nodes == graph.all_mask]
    feeds, result = random_inputs(graph, seed=0), str(model.graph.outputs[0].name)
    rounded = narrowed_products(model, PRECISIONS[target.option("precision")])
    assert isinstance(rounded, Narrowed)
    values = dict(evaluate(model, feeds).values)
    exact, right = values[result], evaluate(rounded.model, feeds).values[result]
    values[result] = right
    check = KernelCheck(
        Toolchain("cutlass", plugin_over(FakeCompiler(), calls)),
        target,
        tmp_path,
        threads=1,
        tolerance=1e-6,
        max_variants=1,
        host=HOST,
        device=FakeDevice("cuda:0").open("cuda:0"),
    )

    assert check.run(candidate.sub_graph, Evaluation(values, {})) == []

    assert np.abs(right - exact).max() > 1e-5  # so that float32 itself would have been found out
    made = [call for call in calls if not call.startswith("place")]
    assert made[: len(wanted)] == wanted


def lowered(model: onnx_ir.Model, target: Target, build: BuildContext) -> list[Artifact]:
    answer = plugin_over(FakeCompiler()).collage_lower(target, largest(model, target), build)
    assert isinstance(answer, Iterator), answer
    return list(answer)


def test_a_weight_that_is_multiplied_is_asked_for_converted_and_a_bias_as_it_is(build: BuildContext) -> None:
    [artifact, *_] = lowered(product("Silu", constant=True, bias=(8,)), BF16, build)

    kinds = {name: content.partition(":")[2] for name, content in artifact.constants.items()}
    assert kinds == {"w.bfloat16": "BFLOAT16", "bias": ""}
    assert artifact.workspace_bytes == 256  # for an input of 3 by 16 elements, and places are at multiples of 256


def test_a_weight_that_is_out_of_range_is_named(build: BuildContext) -> None:
    g = GraphBuilder("large")
    g_weight = g.constant("w", np.full((16, 8), 1e6, np.float32))
    model = g.model(g.op("MatMul", g.input("x", 8, 16), g_weight))

    answer = plugin_over(FakeCompiler()).collage_lower(FP16, largest(model, FP16), build)

    assert isinstance(answer, Unsupported)
    assert "'w'" in answer.reason
    assert "float16" in answer.reason
    assert lowered(model, BF16, build)


def test_rounding_takes_workspace_within_the_limit(build: BuildContext) -> None:
    function = largest(product(a=(64, 64), b=(64, 64)), FP16)

    answer = plugin_over(FakeCompiler()).collage_lower(
        FP16, function, dataclasses.replace(build, workspace_limit_bytes=1 << 10)
    )

    assert isinstance(answer, Unsupported)
    assert "rounding factors takes 16384 bytes" in answer.reason


def test_tf32_has_no_copies_but_of_a_weight_when_it_is_loaded_for_wgmma(build: BuildContext) -> None:
    model = product("Silu", a=(3, 16), b=(16, 8), constant=True)

    [artifact, other, *_] = lowered(model, TF32, build)

    assert artifact.workspace_bytes == 0
    assert list(artifact.constants) == ["w"]
    assert [artifact.variant[:3], other.variant[:4]] == ["tma", "tile"]
    _, calls = check_numbers(model, TF32, tolerance=2e-3)
    assert calls[:2] == ["place 512", "gemm"]
    a100 = dataclasses.replace(H100, model="NVIDIA A100", compute_capability="8.0")
    elsewhere = dataclasses.replace(build, host=dataclasses.replace(HOST, devices=(a100,)))
    for each in lowered(model, TF32, elsewhere):
        assert each.metadata["made"] == {}


def test_a_second_factor_that_is_computed_or_given_transposed_is_read_as_it_lies(build: BuildContext) -> None:
    for model in (product("Silu"), product("Silu", turned=True), product("Silu", turned=True, constant=True)):
        _, calls = check_numbers(model, TF32, tolerance=2e-3)
        assert calls[0] == "gemm"
