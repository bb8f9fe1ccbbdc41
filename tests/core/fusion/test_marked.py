from __future__ import annotations

import onnx_ir
import pytest

from collage_core.contract import Joins, Supported, Target, Unsupported
from collage_core.errors import NoCoverError
from collage_core.fusion import SubGraph, merged_neighbours
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.passes.fuse_ops import FuseOps, FuseOpsByPattern
from collage_core.patterns import FusionPattern, NodeContext, is_constant, is_op, wildcard
from collage_testing import MockToolchain, partition
from collage_testing.graphs import GraphBuilder

DENSE = is_op("Relu")(is_op("MatMul")(wildcard(), is_constant()))


def fused(toolchain: str = "", *, label: str = "") -> onnx_ir.Model:
    """`exp_0`, then `matmul_0 relu_0` as one marked kernel, then `softmax_0`."""
    g = GraphBuilder()
    value = g.op("Relu", g.op("MatMul", g.op("Exp", g.input("x", 4, 8)), g.weight("w", 8, 8)))
    model = g.model(g.op("Softmax", value, axis=-1))
    FuseOpsByPattern([FusionPattern(name=label or "dense", pattern=DENSE)], toolchain=toolchain)(model)
    return model


def cheap(name: str, **options: object) -> MockToolchain:
    return MockToolchain(name, costs_us=lambda candidate: 1.0, **options)  # type: ignore[arg-type]


def test_a_fusion_nobody_owns_goes_whole_to_the_cheaper_of_those_that_take_all_of_it() -> None:
    dear = MockToolchain("dear", costs_us=lambda candidate: 5.0, operators=["Exp", "MatMul", "Relu", "Softmax"])
    partial = cheap("partial", operators=["Exp", "MatMul", "Softmax"])

    result = partition(fused(), [dear, partial])

    assert [(kernel.nodes, kernel.toolchain) for kernel in result.kernels] == [
        (("exp_0",), "partial"),
        (("relu_0",), "dear"),
        (("softmax_0",), "partial"),
    ]
    assert "inside of it, Relu: no predicate takes Relu" in str(result.why_not("partial"))
    body = [node.op_type for site in result.plan.kernels[1:2] for node in _nodes(site.sub_graph.graph)]
    assert body == ["MatMul", "Relu"]


def _nodes(graph: DataflowGraph) -> list[onnx_ir.Node]:
    [function] = graph.model.functions.values()
    return list(function)


def test_regions_end_at_a_fusion_the_model_asks_for() -> None:
    whole = cheap("whole", predicates={"*": lambda node: Supported()}, joins=Joins.ANY)

    assert [kernel.nodes for kernel in partition(fused(), [whole]).kernels] == [("exp_0",), ("relu_0",), ("softmax_0",)]


def test_neighbours_are_merged_around_a_fusion_the_model_asks_for() -> None:
    g = GraphBuilder()
    value = g.op("Relu", g.op("MatMul", g.op("Exp", g.input("x", 4, 8)), g.weight("w", 8, 8)))
    model = g.model(g.op("Neg", g.op("Abs", value)))
    FuseOpsByPattern([FusionPattern(name="dense", pattern=DENSE)], toolchain="t")(model)
    graph = DataflowGraph(model)
    alone = [SubGraph(graph, 1 << index) for index in range(len(graph))]

    merged = merged_neighbours(graph, alone, [], Target(toolchain="t", fingerprint="t 1", joins=Joins.ANY))

    assert sorted(tuple(each.names) for each in merged) == [("abs_0", "neg_0"), ("exp_0",), ("relu_0",)]


def test_a_fusion_goes_to_the_toolchain_it_is_marked_for_with_its_label_and_nobody_else() -> None:
    seen: list[str] = []

    def cost(candidate: object) -> float:
        seen.append(candidate.composite)  # type: ignore[attr-defined]
        return 100.0

    owner = MockToolchain("owner", costs_us=cost, operators=["Nothing"])
    other = cheap("other", predicates={"*": lambda node: Supported()}, joins=Joins.ANY)

    result = partition(fused("owner", label="owner.dense"), [owner, other])

    assert [kernel.toolchain for kernel in result.kernels] == ["other", "owner", "other"]
    assert "owner.dense" in seen
    with pytest.raises(NoCoverError, match="the model gives it to owner"):
        partition(fused("owner"), [other])


def test_a_toolchain_of_patterns_takes_the_fusions_one_of_them_matches_whole() -> None:
    def wide(node: NodeContext) -> Supported | Unsupported:
        return Supported()

    rest = cheap("rest", predicates={"Exp": wide, "Softmax": wide})
    dense = cheap("dense", patterns={"blas.dense_relu": DENSE})
    other = cheap("other", patterns={"blas.matmul": is_op("MatMul")(wildcard(), wildcard())})

    result = partition(fused(), [rest, dense])

    assert [(kernel.toolchain, kernel.composite) for kernel in result.kernels][1] == ("dense", "blas.dense_relu")
    with pytest.raises(NoCoverError, match="no pattern matches the whole of a fusion"):
        partition(fused(), [rest, other])


def test_native_fusion_keeps_a_fusion_as_it_is() -> None:
    native = cheap("native")

    result = partition(fused(), [native])

    assert [kernel.nodes for kernel in result.kernels] == [("exp_0",), ("relu_0",), ("softmax_0",)]


def test_what_fuse_ops_made_runs_on_whoever_takes_it_all() -> None:
    g = GraphBuilder()
    model = g.model(g.op("Tanh", g.op("Relu", g.op("MatMul", g.input("x", 4, 8), g.weight("w", 8, 8)))))
    FuseOps()(model)

    result = partition(model, [cheap("one", operators=["MatMul", "Relu", "Tanh"])])

    assert [kernel.nodes for kernel in result.kernels] == [("tanh_0",)]
