"""`precision=fp16` and `bf16`: what is rounded, where, and by whom, carried out by the emulation."""

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
from collage_core.contract import (
    PRECISIONS,
    Artifact,
    BuildContext,
    Target,
    Unsupported,
)
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.operators.narrowing import Narrowed, narrowed_products
from collage_cublas.library import DataType, Layout
from collage_testing import GraphBuilder
from collage_testing.kit.contexts import MemoryBlobs
from collage_testing.kit.device_checks import check_sub_graphs

from .emulator import Emulator
from .machine import BF16, FP16, TARGET, emulated, largest, plugin_over, proposals


def layer() -> onnx_ir.Model:
    """A weight, a bias, a skip and an activation."""
    g = GraphBuilder("layer")
    product = g.op("Add", g.op("MatMul", g.input("x", 2, 3, 16), g.weight("w", 16, 8)), g.weight("b", 8))
    return g.model(g.op("Relu", g.op("Add", product, g.input("skip", 2, 3, 8))))


def attention() -> onnx_ir.Model:
    """Two inputs, read where attention's heads are."""
    g = GraphBuilder("attention")
    q = g.op("Transpose", g.input("q", 1, 7, 3, 16), perm=[0, 2, 1, 3])
    k = g.op("Transpose", g.input("k", 1, 7, 3, 16), perm=[0, 2, 3, 1])
    return g.model(g.op("MatMul", q, k))


def square() -> onnx_ir.Model:
    """One input as both factors."""
    g = GraphBuilder("square")
    x = g.input("x", 5, 16)
    return g.model(g.op("Gemm", x, x, g.weight("b", 5), transB=1))


MODELS = {"layer": layer, "attention": attention, "square": square}


def lowered(model: onnx_ir.Model, target: Target, build: BuildContext, emulator: Emulator) -> list[Artifact]:
    answer = plugin_over(emulator).collage_lower(target, largest(model), build)
    assert isinstance(answer, Iterator), answer
    return list(answer)


@pytest.mark.parametrize("target", [FP16, BF16], ids=lambda target: target.name)
@pytest.mark.parametrize("name", MODELS)
def test_every_way_multiplies_rounded_factors_and_adds_float32(name: str, target: Target, tmp_path: Path) -> None:
    """Held to the model that says what is rounded, with the tolerance of float32."""
    model, emulator = MODELS[name](), Emulator()
    graph = DataflowGraph(model)
    [candidate] = sorted(proposals(model, target).candidates, key=lambda each: -len(each.sub_graph.names))[:1]
    assert candidate.sub_graph.nodes == graph.all_mask
    feeds, result = random_inputs(graph, seed=0), str(model.graph.outputs[0].name)
    rounded = narrowed_products(model, PRECISIONS[target.option("precision")])
    assert isinstance(rounded, Narrowed)
    values = dict(evaluate(model, feeds).values)
    exact, right = values[result], evaluate(rounded.model, feeds).values[result]
    values[result] = right
    run = Evaluation(values, {})

    check_sub_graphs(emulated(emulator), [candidate.sub_graph], run, target, tolerance=1e-6, max_variants=8)

    assert np.abs(right - exact).max() > 1e-5  # so that float32 itself would have been found out
    assert not emulator.attributes


def test_the_ways_take_turns_and_the_better_guess_comes_first(build: BuildContext) -> None:
    plenty = dataclasses.replace(build, max_variants=2)

    with_weight = [each.variant.partition("_")[0] for each in lowered(layer(), FP16, plenty, Emulator())]
    without = [each.variant.partition("_")[0] for each in lowered(attention(), FP16, plenty, Emulator())]

    assert with_weight == ["cast", "fast"] * 2
    assert without == ["fast", "cast"] * 2


def test_the_chosen_variant_is_made_again_alone(build: BuildContext) -> None:
    for chosen in lowered(layer(), FP16, build, Emulator()):
        for blobs in (build.blobs, MemoryBlobs()):
            alone = dataclasses.replace(build, variant=chosen.variant, blobs=blobs)
            assert lowered(layer(), FP16, alone, Emulator()) == [chosen]


def test_a_weight_is_asked_for_converted_and_an_input_is_rounded_behind_the_algorithms_own_memory(
    build: BuildContext,
) -> None:
    function = largest(layer())
    emulator = Emulator()

    cast = lowered(layer(), FP16, build, emulator)[0]
    fast = lowered(layer(), FP16, build, emulator)[1]

    keys = {name.partition(".")[0]: key for name, key in cast.constants.items()}
    hashes = {content: name for name, content in function.constants.items()}
    suffixes = {key.partition(":")[2] for key in keys.values()}
    assert suffixes == {"FLOAT16", ""}  # the bias is added, so it stays float32
    assert {key.partition(":")[0] for key in keys.values()} == set(hashes)
    casts: Any = cast.metadata["casts"]
    [[_, offset, elements]] = casts
    assert (offset, elements) == (1 << 20, 2 * 3 * 16)
    assert cast.workspace_bytes == (1 << 20) + 256
    assert set(fast.constants.values()) == set(hashes)
    assert fast.metadata["casts"] == []
    a, b, c, d = (emulator.sought[0][each][Layout.TYPE] for each in "abcd")
    assert (a, b, c, d) == (DataType.R_16F, DataType.R_16F, DataType.R_32F, DataType.R_32F)


def test_an_input_that_is_both_factors_is_rounded_once(build: BuildContext) -> None:
    cast = next(each for each in lowered(square(), FP16, build, Emulator()) if each.variant.startswith("cast"))

    assert len(cast.metadata["casts"]) == 1  # type: ignore[arg-type]


def test_where_there_is_no_memory_to_round_into_the_library_rounds(build: BuildContext) -> None:
    made = lowered(layer(), FP16, dataclasses.replace(build, workspace_limit_bytes=255), Emulator())

    assert {each.variant.partition("_")[0] for each in made} == {"fast"}


def test_a_weight_out_of_range_is_named(build: BuildContext) -> None:
    g = GraphBuilder()
    model = g.model(g.op("MatMul", g.input("x", 4, 8), g.constant("heavy", np.full((8, 4), -7e4, np.float32))))

    refused = plugin_over(Emulator()).collage_lower(FP16, largest(model), build)

    assert isinstance(refused, Unsupported)
    assert refused.reason.endswith("has a number of magnitude 7e+04, and float16 ends at 6.55e+04")
    assert not isinstance(plugin_over(Emulator()).collage_lower(BF16, largest(model), build), Unsupported)


def test_other_types_are_the_plain_targets() -> None:
    g = GraphBuilder()
    x, z = (g.input(name, 8, 8, dtype=onnx_ir.DataType.FLOAT16) for name in ("x", "z"))

    found = proposals(g.model(g.op("MatMul", x, z)), FP16)

    assert "precision=fp16 is a way to multiply float32" in found.refusals[0]


@pytest.mark.parametrize("target", [TARGET, FP16], ids=lambda target: target.name)
def test_only_sums_in_an_order_that_is_fixed_are_asked_for_where_bits_must_be_the_same(
    target: Target, build: BuildContext
) -> None:
    free = lowered(layer(), target, build, Emulator())
    bound = lowered(layer(), target, dataclasses.replace(build, deterministic=True), Emulator())

    assert {each.deterministic for each in free} == {True, False}
    assert [each.deterministic for each in bound] == [True] * len(free)  # as many, none of them to be passed over
