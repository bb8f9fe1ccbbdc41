"""Which groups are proposed: whatever feeds one result, or two of one shape, reductions among them."""

from __future__ import annotations

import numpy as np
import onnx_ir

from collage_core.candidates.proposals import propose, target_rule
from collage_core.contract import Joins, Target
from collage_core.fusion import CandidateBounds
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits
from collage_core.registry import Toolchain
from collage_halide.plugin import plugin
from collage_testing import GraphBuilder

TARGET = Target(toolchain="halide", fingerprint="test", joins=Joins.NATIVE)


def proposed(g: GraphBuilder, *outputs: onnx_ir.Value) -> set[str]:
    graph = DataflowGraph(g.model(*outputs))
    found = propose(target_rule(Toolchain("halide", plugin), TARGET, {}), graph, CandidateBounds.preset("default"))
    return {
        " ".join(graph.nodes[index].op_type for index in iterate_bits(each.sub_graph.nodes & graph.needs_kernel))
        for each in found.candidates
    }


def test_an_upsampling_is_joined_with_the_arg_max_that_reads_it() -> None:
    g = GraphBuilder()
    scaled = g.op(
        "Resize", g.input("x", 1, 5, 4, 4), None, g.constant("s", np.array([1, 1, 2, 2], np.float32)), mode="linear"
    )
    assert "Resize ArgMax" in proposed(g, g.op("ArgMax", scaled, axis=1))


def test_reductions_are_joined_with_one_another() -> None:
    g = GraphBuilder()
    share = g.op("Softmax", g.op("Neg", g.input("x", 3, 8)), axis=-1)
    assert "Neg Softmax ReduceMax" in proposed(g, g.op("ReduceMax", share, g.ints(1)))


def test_matrix_products_are_left_to_libraries() -> None:
    g = GraphBuilder()
    product = g.op("MatMul", g.op("Relu", g.input("x", 3, 8)), g.weight("w", 8, 5))
    assert proposed(g, g.op("Exp", product)) == {"Relu", "Exp"}


def test_two_poolings_are_two_kernels() -> None:
    g = GraphBuilder()
    pooled = g.op("MaxPool", g.op("Relu", g.input("x", 1, 3, 8, 8)), kernel_shape=[2, 2])
    assert proposed(g, g.op("AveragePool", pooled, kernel_shape=[2, 2])) == {
        "Relu",
        "MaxPool",
        "AveragePool",
        "Relu MaxPool",
    }


def test_two_results_of_one_shape_are_written_together() -> None:
    g = GraphBuilder()
    grown = g.op("Exp", g.input("x", 3, 8))
    assert proposed(g, g.op("Neg", grown), g.op("Abs", grown)) == {
        "Exp",
        "Neg",
        "Abs",
        "Exp Neg",
        "Exp Abs",
        "Exp Neg Abs",
    }


def test_a_residual_sum_is_joined_with_the_norm_of_it() -> None:
    g = GraphBuilder()
    total = g.op("Add", g.input("x", 1, 4, 8), g.input("y", 4, 8))
    norm = g.op("LayerNormalization", total, g.weight("s", 8), g.weight("b", 8), axis=-1)
    assert "Add LayerNormalization" in proposed(g, total, norm)


def test_results_of_different_shapes_are_in_different_groups() -> None:
    g = GraphBuilder()
    grown = g.op("Exp", g.input("x", 3, 8))
    assert proposed(g, grown, g.op("ReduceMax", grown, g.ints(1), keepdims=0)) == {"Exp", "ReduceMax"}


def test_more_than_two_results_are_too_many() -> None:
    g = GraphBuilder()
    grown = g.op("Exp", g.input("x", 3, 8))
    found = proposed(g, grown, g.op("Neg", grown), g.op("Abs", grown))
    assert {"Exp Neg", "Exp Abs"} <= found
    assert "Exp Neg Abs" not in found
