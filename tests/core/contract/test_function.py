"""The structural hash of a kernel function: what blob caches are keyed by."""

from __future__ import annotations

import numpy as np

from collage_core.contract import KernelFunction
from collage_core.fusion import SubGraph, kernel_function
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_testing import GraphBuilder, dense


def function(n: int = 8, *, seed: int = 0, scale: float | None = None) -> tuple[KernelFunction, SubGraph]:
    g = GraphBuilder(seed=seed)
    value = g.op("MatMul", g.input("x", 4, 16), g.weight("w", 16, n))
    if scale is not None:
        value = g.op("Mul", value, g.constant("scale", np.float32(scale)))
    graph = DataflowGraph(g.model(value))
    whole = SubGraph(graph, graph.all_mask)
    return kernel_function(whole, "kernel"), whole


def test_it_is_the_candidates_own() -> None:
    made, candidate = function()

    assert made.structural_hash == candidate.structural_hash


def test_weights_do_not_change_it_and_shapes_and_small_constants_do() -> None:
    hashes = [
        made.structural_hash
        for made, _ in (function(), function(seed=1), function(9), function(scale=2.0), function(scale=3.0))
    ]

    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == 4


def test_names_do_not_change_it() -> None:
    one, other = (DataflowGraph(dense(activation="Relu")) for _ in range(2))
    renamed = other.model.graph.outputs[0]
    renamed.name = "another"

    hashes = {
        kernel_function(SubGraph(graph, graph.all_mask), name).structural_hash
        for graph, name in ((one, "kernel"), (DataflowGraph(other.model), "renamed"))
    }

    assert len(hashes) == 1
