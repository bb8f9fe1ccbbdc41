"""`precision=fp16` and `bf16`: which model that is, said in NumPy; and which engines are built of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir
import pytest

from collage.prepare.steps import prepare
from collage.reference import evaluate
from collage.setup.inputs.random_arrays import random_inputs
from collage_core.contract import PRECISIONS, BuildContext, KernelFunction, Unsupported
from collage_core.fusion import SubGraph, kernel_function
from collage_core.fusion.spec import measured_as
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.io.model_io import model_from_bytes, model_to_bytes
from collage_tensorrt.halved import halved
from collage_tensorrt.lower import ENGINE
from collage_testing import GraphBuilder
from tests.exports.reading import read

from .emulated import Library
from .machine import HOST, lowered, plugin_over, proposals, target, whole

Array = np.ndarray[Any, Any]
D = onnx_ir.DataType
FP16 = PRECISIONS["fp16"]


def made(model: onnx_ir.Model, precision: str = "fp16") -> KernelFunction:
    function = halved(whole(model), PRECISIONS[precision])
    assert isinstance(function, KernelFunction), function.reason
    return function


def dense() -> onnx_ir.Model:
    g = GraphBuilder("dense")
    product = g.op("MatMul", g.input("x", 5, 16), g.weight("w", 16, 8))
    return g.model(g.op("Relu", g.op("Add", product, g.weight("b", 8))))


def gemm() -> onnx_ir.Model:
    g = GraphBuilder("gemm")
    operands = g.input("x", 16, 5), g.weight("w", 8, 16), g.weight("b", 8)
    return g.model(g.op("Gemm", *operands, transA=1, transB=1, alpha=0.5, beta=0.25))


def pointwise() -> onnx_ir.Model:
    g = GraphBuilder("pointwise")
    return g.model(g.op("Conv", g.input("x", 2, 16, 3, 3), g.weight("w", 8, 16, 1, 1), g.weight("b", 8)))


def said(name: str, dtype: Any, x: Array, w: Array, b: Array) -> Array:
    """What a model means with its product in a type: sums in float32, the bias added to what was rounded."""

    def rounded(array: Array) -> Array:
        return array.astype(dtype).astype(np.float32)

    match name:
        case "dense":
            return np.maximum(rounded(rounded(x) @ rounded(w)) + b, 0)
        case "gemm":
            return np.float32(0.5) * rounded(rounded(x).T @ rounded(w).T) + np.float32(0.25) * b
    products = np.einsum("ncij,oc->noij", rounded(x), rounded(w)[:, :, 0, 0])
    return rounded(products) + b[:, None, None]


MODELS = {"dense": dense, "gemm": gemm, "pointwise": pointwise}


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", MODELS)
def test_operands_and_results_of_products_are_rounded_and_nothing_else(name: str, precision: str) -> None:
    model = MODELS[name]()
    feeds = random_inputs(DataflowGraph(model), seed=0)
    [output] = [str(value.name) for value in model.graph.outputs]
    function = made(model, precision)

    found = evaluate(model_from_bytes(model_to_bytes(function.model)), feeds).values[output]

    weights = {key: np.asarray(value.const_value) for key, value in model.graph.initializers.items()}
    right = said(name, PRECISIONS[precision].numpy(), feeds["x"], weights["w"], weights["b"])
    epsilon = {"fp16": 2.0**-10, "bf16": 2.0**-7}[precision]
    # sums in another order may round to the next number of the type, now and then
    assert np.abs(found - right).max() <= epsilon * np.abs(right).max()
    assert np.mean(np.abs(found - right) > 1e-6) < 0.02
    assert found.dtype == np.float32
    assert [spec.name for spec in (*function.inputs, *function.outputs)] == ["x", output]
    assert np.abs(found - evaluate(model, feeds).values[output]).max() > epsilon / 50


def test_what_a_product_gives_to_several_and_to_the_outside_is_the_same() -> None:
    g = GraphBuilder("shared")
    product = g.op("MatMul", g.input("x", 4, 8), g.input("z", 8, 8))
    model = g.model(product, g.op("Relu", product), g.op("MatMul", product, g.weight("w", 8, 8)))
    feeds = random_inputs(DataflowGraph(model), seed=0)

    function = made(model)

    names = [str(value.name) for value in model.graph.outputs]
    assert [str(value.name) for value in function.model.graph.outputs] == names
    values = evaluate(function.model, feeds).values
    first, activated, _ = (values[name] for name in names)
    np.testing.assert_array_equal(first, first.astype(np.float16).astype(np.float32))
    np.testing.assert_array_equal(activated, np.maximum(first, 0))


def test_the_model_given_is_not_changed_and_twice_is_once() -> None:
    function = whole(dense())
    before = model_to_bytes(function.model)

    once = halved(function, FP16)

    assert model_to_bytes(function.model) == before
    assert isinstance(once, KernelFunction)
    casts = [node.op_type for node in once.model.graph].count("Cast")
    assert casts == 5  # of what is multiplied, back, of the weight back, and the result's two


@pytest.mark.parametrize("dtype", [D.FLOAT16, D.BFLOAT16, D.INT32], ids=lambda dtype: dtype.name)
def test_products_of_other_types_stay_as_they_are(dtype: D) -> None:
    g = GraphBuilder("other")
    model = g.model(g.op("MatMul", g.input("x", 4, 8, dtype=dtype), g.input("z", 8, 4, dtype=dtype)))

    assert [node.op_type for node in made(model).model.graph] == ["MatMul"]


def test_a_weight_that_the_type_cannot_hold_is_named() -> None:
    g = GraphBuilder("large")
    model = g.model(g.op("MatMul", g.input("x", 4, 8), g.constant("w", np.full((8, 8), 7e4, np.float32))))

    answer = halved(whole(model), FP16)

    assert isinstance(answer, Unsupported)
    assert answer.reason == "the weight 'w' has a number of magnitude 7e+04, and float16 ends at 6.55e+04"
    assert isinstance(halved(whole(model), PRECISIONS["bf16"]), KernelFunction)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_what_holds_no_product_is_built_as_without_a_precision(precision: str, build: BuildContext) -> None:
    """As `Target.rounds` says of the targets, so that it is measured once for all of them."""
    g = GraphBuilder("norm")
    function = whole(g.model(g.op("LayerNormalization", g.input("x", 4, 16), g.weight("s", 16), g.weight("b", 16))))
    plugin = plugin_over(Library(rtx=True))
    found = plugin.collage_targets(HOST)
    assert not isinstance(found, Unsupported)
    by_precision = {each.option("precision"): each for each in found}
    graph = DataflowGraph(function.model)
    plain, rounded = by_precision[""], by_precision[precision]

    assert measured_as(rounded, SubGraph(graph, graph.all_mask)) == plain
    assert lowered(plugin, function, build, rounded) == lowered(plugin, function, build, plain)


# What the library makes of it. Its engines cannot be read without a device, so how large they are has to tell.


@pytest.mark.parametrize("precision", PRECISIONS)
def test_an_engine_holds_the_weights_of_products_in_16_bits(precision: str, rtx: Any, build: BuildContext) -> None:
    """Weights that the builder had made float32 again would show that it multiplies in float32."""
    g = GraphBuilder("wide")
    product = g.op("MatMul", g.input("x", 64, 512), g.weight("w", 512, 512))
    value = g.op("Relu", g.op("Add", product, g.weight("b", 512)))
    filtered = g.op("Conv", g.input("image", 1, 128, 7, 7), g.weight("k", 256, 128, 3, 3), g.weight("c", 256))
    function = whole(g.model(value, g.op("Relu", filtered)))
    sizes: Mapping[str, int] = {each: size(function, each, rtx, build) for each in ("", precision)}

    weights = 4 * (512 * 512 + 256 * 128 * 3 * 3)
    assert sizes[""] > weights
    assert sizes[precision] < sizes[""] - 0.4 * weights  # code for tensor cores is larger


@pytest.mark.parametrize("name", ["bert", "vit", "gpt2", "convnext"])
def test_regions_of_exports_become_engines_in_16_bits(name: str, rtx: Any, build: BuildContext) -> None:
    graph = DataflowGraph(prepare(read(name, "torchscript")))
    of = target(precision="fp16")
    products = sum(1 << index for index, node in enumerate(graph.nodes) if node.op_type in ("MatMul", "Gemm"))
    large = [
        each.sub_graph
        for each in proposals(plugin_over(rtx), graph, of).candidates
        if (each.sub_graph.nodes & graph.needs_kernel).bit_count() >= 8 and each.sub_graph.nodes & products
    ]
    region = kernel_function(min(large, key=lambda each: each.nodes.bit_count()), "region")

    assert size(region, "fp16", rtx, build) > 0


def size(function: KernelFunction, precision: str, rtx: Any, build: BuildContext) -> int:
    [artifact] = lowered(plugin_over(rtx), function, build, target(precision=precision))
    return len(artifact.files[ENGINE])
