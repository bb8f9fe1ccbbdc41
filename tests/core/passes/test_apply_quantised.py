"""A partitioned model whose kernels have quantised products, against the kernels' own functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx_ir
import pytest
from onnx_ir.passes.common import InlinePass

from collage_core.candidates.plan import Plan
from collage_core.contract import Target
from collage_core.fusion import CandidateKernel, FusionSpec, Partitioning, SubGraph, UnionRule
from collage_core.fusion.kernel import kernel_function
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.operators.quantising import Int8Product, Range
from collage_core.ir.values.content import constant_of
from collage_core.passes.apply import apply_partitioning
from collage_core.passes.call_sites import call_sites
from collage_testing import GraphBuilder

Evaluate = Callable[..., list[Any]]
SPAN = Range(-4.0, 4.0)
TARGET = Target(toolchain="narrow", options=(("precision", "int8"),), fingerprint="narrow 1", exact=False)
SPEC = FusionSpec(name="narrow", rule=UnionRule(()), targets=(TARGET,))
FEEDS = {"x": np.random.default_rng(5).normal(size=(3, 16)).astype(np.float32)}


@pytest.fixture
def graph() -> DataflowGraph:
    """Two layers of equal structure, with different weights."""
    g = GraphBuilder("layers")
    value = g.input("x", 3, 16)
    for number in range(2):
        value = g.op("Relu", g.op("MatMul", value, g.weight(f"w{number}", 16, 16)))
    return DataflowGraph(g.model(value))


def layer(graph: DataflowGraph, number: int, *spans: Range | None) -> CandidateKernel:
    nodes = 0b11 << 2 * number
    products = tuple(Int8Product(2 * number, span) for span in spans)
    return CandidateKernel(SubGraph(graph, nodes, int8=products), SPEC)


@pytest.mark.parametrize("symmetric", [False, True])
def test_a_kernel_is_the_same_in_the_partitioned_model_and_alone(
    graph: DataflowGraph, evaluate: Evaluate, symmetric: bool
) -> None:
    kernels = (layer(graph, 0, SPAN.in_form(symmetric=symmetric)), layer(graph, 1))
    model = apply_partitioning(Partitioning(graph, kernels))
    sites = call_sites(model)

    alone = [kernel_function(kernel.sub_graph, "alone") for kernel in kernels]
    again = [site.kernel_function() for site in sites]
    inner = FEEDS["x"]
    for one, other in zip(alone, again, strict=True):
        results = [evaluate(each.model, {each.inputs[0].name: inner})[0] for each in (one, other)]
        np.testing.assert_array_equal(results[0], results[1])
        assert one.structural_hash == other.structural_hash
        assert sorted(one.constants.values()) == sorted(other.constants.values())
        inner = results[0]
    onnx.checker.check_model(onnx_ir.to_proto(model))
    inlined = model.clone()
    InlinePass()(inlined)
    [whole] = evaluate(inlined, FEEDS)
    np.testing.assert_array_equal(whole, inner)
    [plain] = evaluate(graph.model, FEEDS)
    assert np.abs(whole - plain).max() > 1e-4, "something was rounded"


def test_a_quantised_weight_is_the_functions_own(graph: DataflowGraph) -> None:
    function = kernel_function(layer(graph, 0, SPAN).sub_graph, "k")

    assert function.constants == {}
    dtypes = {value.dtype for value in function.model.graph.initializers.values()}
    assert onnx_ir.DataType.INT8 in dtypes
    assert "w0" not in function.model.graph.initializers


def test_a_product_without_a_range_has_its_weight_alone_quantised(graph: DataflowGraph, evaluate: Evaluate) -> None:
    function = kernel_function(layer(graph, 0, None).sub_graph, "k")

    assert [node.op_type for node in function.model.graph] == ["DequantizeLinear", "MatMul", "Relu"]
    [found] = evaluate(function.model, FEEDS)
    weight = constant_of(graph.nodes[0].inputs[1])
    assert weight is not None
    scales = np.abs(weight.numpy()).max(axis=0) / np.float32(127)
    rounded = np.rint(weight.numpy() / scales) * scales
    np.testing.assert_allclose(found, np.maximum(FEEDS["x"] @ rounded, 0), rtol=1e-5, atol=1e-5)
    assert np.abs(found - np.maximum(FEEDS["x"] @ weight.numpy(), 0)).max() > 1e-4, "something was rounded"


def test_a_partitioned_model_has_weights_in_8_bits_alone(graph: DataflowGraph, evaluate: Evaluate) -> None:
    kernels = (layer(graph, 0, None), layer(graph, 1))
    model = apply_partitioning(Partitioning(graph, kernels))

    InlinePass()(model)
    [whole] = evaluate(model, FEEDS)
    [inner] = evaluate(kernel_function(kernels[0].sub_graph, "k").model, FEEDS)
    second = kernel_function(kernels[1].sub_graph, "k")
    [expected] = evaluate(second.model, {second.inputs[0].name: inner})
    np.testing.assert_array_equal(whole, expected)


def test_kernels_that_differ_in_what_is_quantised_are_told_apart(graph: DataflowGraph) -> None:
    symmetric = SPAN.in_form(symmetric=True)
    plain, narrow, wider, signed, weight = (
        layer(graph, 0, *spans) for spans in ((), (SPAN,), (Range(-8.0, 8.0),), (symmetric,), (None,))
    )

    assert plain.sub_graph.structural_hash != narrow.sub_graph.structural_hash
    assert narrow.sub_graph.structural_hash == wider.sub_graph.structural_hash, "ranges are numbers, as weights are"
    assert len({each.sub_graph.structural_hash for each in (plain, narrow, signed, weight)}) == 4, "types are none"
    assert len({each.sub_graph.form for each in (plain, narrow, wider, signed, weight)}) == 5
    keys = {
        Plan(
            name="p", single=True, partitioning=Partitioning(graph, (one, layer(graph, 1))), costs_us=(1.0, 1.0),
            dispatch_us=0.0,
        ).key
        for one in (plain, narrow, wider, signed, weight)
    }  # fmt: skip
    assert len(keys) == 5, "what is known of one plan says nothing of another"


def test_layers_that_differ_in_weights_share_no_function_because_scales_are_inside(graph: DataflowGraph) -> None:
    model = apply_partitioning(Partitioning(graph, (layer(graph, 0, SPAN), layer(graph, 1, SPAN))))

    assert len(model.functions) == 2
    assert len(apply_partitioning(Partitioning(graph, (layer(graph, 0), layer(graph, 1)))).functions) == 1


def test_what_a_pattern_matched_is_not_quantised(graph: DataflowGraph) -> None:
    with pytest.raises(ValueError, match="pattern"):
        SubGraph(graph, 0b11, label="x.dense", int8=(Int8Product(0, SPAN),))
    with pytest.raises(ValueError, match="inside"):
        SubGraph(graph, 0b11, int8=(Int8Product(2, SPAN),))
    with pytest.raises(ValueError, match="no product"):
        kernel_function(SubGraph(graph, 0b11, int8=(Int8Product(1, SPAN),)), "k")


def test_what_the_model_quantises_itself_stays_as_it_is() -> None:
    g = GraphBuilder("own")
    scale, zero = g.constant("s", np.full(16, 0.1, np.float32)), g.constant("z", np.zeros(16, np.int8))
    narrow = g.op("QuantizeLinear", g.weight("w", 16, 16), scale, zero, axis=1)
    wide = g.op("DequantizeLinear", narrow, scale, zero, axis=1)
    own = DataflowGraph(g.model(g.op("MatMul", g.input("x", 3, 16), wide)))
    kernel = CandidateKernel(SubGraph(own, own.all_mask), SPEC)

    [site] = call_sites(apply_partitioning(Partitioning(own, (kernel,))))

    alone, again = kernel_function(kernel.sub_graph, "k"), site.kernel_function()
    assert [node.op_type for node in again.model.graph] == [node.op_type for node in alone.model.graph]
    assert again.structural_hash == alone.structural_hash
    assert sorted(again.constants.values()) == sorted(alone.constants.values())
