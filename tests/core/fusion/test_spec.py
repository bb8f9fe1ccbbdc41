from __future__ import annotations

import dataclasses

import pytest

from collage_core.contract import Target
from collage_core.fusion import CandidateKernel, FusionSpec, OpCallByKindRule, SubGraph
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.operators.narrowing import PRODUCTS
from collage_testing import GraphBuilder

PLAIN = Target(toolchain="t", device="cuda:0", options=(("launch", "eager"),), fingerprint="t 1", max_inputs=4)
FP16 = dataclasses.replace(
    PLAIN, options=(("launch", "eager"), ("precision", "fp16")), exact=False, rounds=frozenset(PRODUCTS)
)


@pytest.fixture(scope="module")
def graph() -> DataflowGraph:
    g = GraphBuilder("dense")
    product = g.op("MatMul", g.input("x", 8, 16), g.weight("w", 16, 16))
    return DataflowGraph(g.model(g.op("Softmax", g.op("Relu", product))))


def kernel(graph: DataflowGraph, target: Target, *names: str) -> CandidateKernel:
    nodes = sum(1 << graph.index_of(name) for name in names)
    return CandidateKernel(
        SubGraph(graph, nodes), FusionSpec(name=target.name, rule=OpCallByKindRule(), targets=(target,))
    )


@pytest.mark.parametrize(
    ("nodes", "target"),
    [
        (["softmax_0"], PLAIN),
        (["relu_0", "softmax_0"], PLAIN),
        (["matmul_0"], FP16),
        (["matmul_0", "relu_0", "softmax_0"], FP16),
    ],
)
def test_a_kernel_without_a_product_is_measured_as_that_of_full_precision(
    graph: DataflowGraph, nodes: list[str], target: Target
) -> None:
    candidate = kernel(graph, FP16, *nodes)

    assert candidate.measured_as == target
    assert candidate.target == FP16  # who runs it is another matter


def test_a_target_that_does_not_say_what_it_rounds_is_measured_as_itself(graph: DataflowGraph) -> None:
    silent = dataclasses.replace(FP16, rounds=None)

    assert kernel(graph, silent, "softmax_0").measured_as == silent
    assert kernel(graph, PLAIN, "softmax_0").measured_as == PLAIN


def test_one_that_rounds_nothing_is_always_measured_as_the_other(graph: DataflowGraph) -> None:
    named = dataclasses.replace(FP16, rounds=frozenset())

    assert kernel(graph, named, "matmul_0").measured_as == PLAIN
