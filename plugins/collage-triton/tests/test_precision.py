"""Targets of lower precision: kernels whose operands are rounded, interpreted, against the reference of both models."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir
import pytest

from collage.reference import evaluate
from collage_core.contract import (
    PRECISIONS,
    Artifact,
    BuildContext,
    KernelFunction,
    Target,
    Unsupported,
    in_precision,
)
from collage_core.fusion import SubGraph
from collage_core.fusion.spec import measured_as
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.operators import narrowing
from collage_testing import GraphBuilder
from collage_testing.kit import build_context
from collage_triton.compile import Compiled
from collage_triton.emit import source_of
from collage_triton.lower import lower
from collage_triton.nest import nest_of, walk
from collage_triton.plugin import targets
from collage_triton.tiles import Tile

from .checking import Checker, feeds_of, function_of
from .emulation import H200, HOST

EXACT, *LOWER = targets("3.9.0", [H200])
_, FP16, BF16 = LOWER
TILE = Tile(16, 16, 1, 16)
TRITON = {"fp16": "tl.float16", "bf16": "tl.bfloat16"}

Make = Callable[[GraphBuilder], onnx_ir.Value]


def linear(g: GraphBuilder) -> onnx_ir.Value:
    """A weight, a bias, work before and after, and a skip of what was multiplied."""
    x = g.op("Relu", g.input("x", 5, 33))
    product = g.op("Add", g.op("MatMul", x, g.weight("w", 33, 33)), g.weight("b", 33))
    return g.op("Add", g.op("Gelu", product), x)


def attention_scores(g: GraphBuilder) -> onnx_ir.Value:
    """Two activations, and a mask of which no float16 is like."""
    scores = g.op("MatMul", g.input("q", 2, 7, 20), g.input("k", 2, 20, 9))
    mask = np.where(np.arange(9) < 7, 0.0, -3e38).astype(np.float32)
    return g.op("Add", scores, g.constant("mask", mask))


def gemm(g: GraphBuilder) -> onnx_ir.Value:
    return g.op("Gemm", g.input("x", 20, 6), g.weight("w", 9, 20), g.weight("b", 9), transA=1, transB=1, alpha=0.5)


def padded_convolution(g: GraphBuilder) -> onnx_ir.Value:
    filtered = g.op("Conv", g.input("x", 2, 3, 5, 6), g.weight("w", 4, 3, 3, 3), g.weight("b", 4), pads=[1, 1, 1, 1])
    return g.op("Relu", filtered)


def depthwise_convolution(g: GraphBuilder) -> onnx_ir.Value:
    return g.op("Conv", g.input("x", 1, 4, 6, 6), g.weight("w", 4, 1, 3, 3), group=4)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(
    "make", [linear, attention_scores, gemm, padded_convolution, depthwise_convolution], ids=lambda make: make.__name__
)
def test_a_kernel_rounds_what_it_multiplies_and_nothing_else(make: Make, precision: str, check: Checker) -> None:
    g = GraphBuilder()
    function = function_of(g, make(g))
    narrowed = in_precision(function, PRECISIONS[precision])
    assert isinstance(narrowed, KernelFunction)

    check(narrowed, [TILE], tolerance=2.0)  # a float32 kernel's own tolerance: of the model that says what is rounded

    # and that model is as far from the original as rounding two factors makes it: 2 roundings of half an eps each
    feeds = feeds_of(function)
    name = function.outputs[0].name
    right = np.asarray(evaluate(function.model, feeds).values[name], np.float64)
    given = np.asarray(evaluate(narrowed.model, feeds).values[name], np.float64)
    usual = np.abs(right) < 1e30
    eps = float(ml_dtypes.finfo(PRECISIONS[precision].numpy()).eps)
    error = np.abs(given - right)[usual].max() / np.abs(right)[usual].max()
    assert 1e-3 * eps < error < 4 * eps


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("make", [linear, padded_convolution, attention_scores], ids=lambda make: make.__name__)
def test_tensor_cores_are_given_16_bit_operands_and_add_up_in_float32(make: Make, precision: str) -> None:
    g = GraphBuilder()
    narrowed = in_precision(function_of(g, make(g)), PRECISIONS[precision])
    assert isinstance(narrowed, KernelFunction)
    nest = nest_of(narrowed)

    source = source_of(nest, TILE)

    dots = [term for term in walk([nest.stores[0].value]) if term.op == "dot"]
    types = {"fp16": "f16", "bf16": "bf16"}
    assert [each.dtype for dot in dots for each in (dot, *dot.operands)] == ["f32", *[types[precision]] * 2]
    assert "tl.dot(" in source
    assert f"{TRITON[precision]}" in source
    weights = {each.name[0]: each.dtype for each in nest.parameters if isinstance(each.place, str)}
    assert set(weights.values()) <= {types[precision], "f32"}  # biases and masks stay float32


def test_a_product_of_numbers_that_the_model_itself_widens_is_made_of_the_narrow_ones() -> None:
    g = GraphBuilder()
    x, w = (g.input(name, 32, 32, dtype=onnx_ir.DataType.FLOAT16) for name in "xw")
    wide = [g.op("Cast", each, to=onnx_ir.DataType.FLOAT.value) for each in (x, w)]

    source = source_of(nest_of(function_of(g, g.op("MatMul", *wide))), Tile(32, 32, 1, 32))

    assert "tl.float32)" not in source.partition("tl.dot(")[2].partition("\n")[0]
    assert ".to(tl.float32)" not in source


# Lowering


@pytest.fixture
def build(tmp_path: Path) -> BuildContext:
    return build_context(tmp_path, workspace_limit_bytes=0, host=HOST)


def _compiled(source: str, parameters: Any, tile: Tile, capability: str, **_: Any) -> Compiled:
    return Compiled(cubin=source.encode(), name="kernel", threads=32, shared_bytes=0, scratch=2)


def test_weights_are_asked_for_in_the_type_and_no_kernel_holds_them(build: BuildContext) -> None:
    g = GraphBuilder()
    function = function_of(g, linear(g))

    answer = lower(FP16, function, build, "3.9.0", _compiled)

    assert not isinstance(answer, Unsupported)
    [artifact] = answer
    wanted = {name.partition(".")[0]: key for name, key in artifact.constants.items()}
    assert wanted == {"w": function.constants["w"] + ":FLOAT16", "b": function.constants["b"]}
    assert all(len(data) < 20_000 for data in artifact.files.values())


def norm(g: GraphBuilder) -> onnx_ir.Value:
    """A reduction, a weight, work before and after: everything but a product."""
    x = g.op("Gelu", g.input("x", 5, 33))
    return g.op("Mul", g.op("Softmax", x, axis=-1), g.weight("w", 33))


def half_product(g: GraphBuilder) -> onnx_ir.Value:
    x, w = (g.input(name, 32, 32, dtype=onnx_ir.DataType.FLOAT16) for name in "xw")
    return g.op("Relu", g.op("MatMul", x, w))


@pytest.mark.parametrize("target", LOWER, ids=lambda target: target.name)
@pytest.mark.parametrize(("make", "same"), [(norm, True), (half_product, True), (gemm, False)])
def test_what_is_measured_as_the_plain_target_is_its_kernel_to_the_last_byte(
    make: Make, same: bool, target: Target, build: BuildContext
) -> None:
    g = GraphBuilder()
    function = function_of(g, make(g))
    graph = DataflowGraph(function.model)

    plain, lower_precision = (_all_variants(each, function, build) for each in (EXACT, target))

    assert (measured_as(target, SubGraph(graph, graph.all_mask)) == EXACT) is same
    assert (plain == lower_precision) is same
    assert plain


def _all_variants(target: Target, function: KernelFunction, build: BuildContext) -> list[Artifact]:
    answer = lower(target, function, dataclasses.replace(build, max_variants=99), "3.9.0", _compiled)
    assert not isinstance(answer, Unsupported)
    return list(answer)


def test_its_products_are_what_core_rounds() -> None:
    assert LOWER[0].rounds == frozenset(narrowing.PRODUCTS)


def test_a_weight_that_float16_cannot_hold_is_named(build: BuildContext) -> None:
    g = GraphBuilder()
    heavy = np.full((33, 8), 1e5, np.float32)
    function = function_of(g, g.op("MatMul", g.input("x", 5, 33), g.constant("heavy", heavy)))

    refused = lower(FP16, function, build, "3.9.0", _compiled)

    assert refused == Unsupported("the weight 'heavy' has a number of magnitude 1e+05, and float16 ends at 6.55e+04")
    assert not isinstance(lower(BF16, function, build, "3.9.0", _compiled), Unsupported)


def test_what_multiplies_nothing_is_the_same_kernel_in_every_precision(build: BuildContext) -> None:
    g = GraphBuilder()
    function = function_of(g, g.op("Softmax", g.op("Add", g.input("x", 6, 96), g.weight("row", 96))))
    made = []
    for target in (EXACT, FP16, BF16):
        answer = lower(target, function, build, "3.9.0", _compiled)
        assert not isinstance(answer, Unsupported)
        made += list(answer)

    assert made[0] == made[1] == made[2]
