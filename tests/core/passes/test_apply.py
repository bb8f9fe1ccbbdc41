from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx_ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx_ir.passes.common import InlinePass

from collage_core.contract import Target
from collage_core.errors import ModelError
from collage_core.fusion import CandidateKernel, FusionRule, FusionSpec, Partitioning, RuleOutcome, SubGraph
from collage_core.fusion.kernel import kernel_function
from collage_core.ir.graph.canonical import Composite, structural_hash
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits
from collage_core.ir.operators.value_bounds import spec_of
from collage_core.passes.apply import apply_partitioning
from collage_core.passes.call_sites import call_sites

Parsed = Callable[..., onnx_ir.Model]
Evaluate = Callable[..., list[Any]]


class NoRule(FusionRule):
    def propose(self, graph: DataflowGraph, context: object) -> RuleOutcome:
        return RuleOutcome()


def spec(name: str) -> FusionSpec:
    return FusionSpec(name=name, rule=NoRule(), targets=(Target(toolchain=name, fingerprint=f"{name} 1"),))


SPECS = (spec("red"), spec("blue"))


def random_partitioning(graph: DataflowGraph, rng: random.Random) -> Partitioning:
    """Runs of consecutive nodes, each for a random target; consecutive runs can never wait in a circle."""
    kernels = []
    start = 0
    while start < len(graph):
        end = min(len(graph), start + rng.randrange(1, 6))
        nodes = graph.completed(((1 << end) - 1) & ~((1 << start) - 1))
        if nodes:
            kernels.append(CandidateKernel(SubGraph(graph, nodes), rng.choice(SPECS)))
        start = end
    return Partitioning(graph, tuple(kernels))


def whole_hash(model: onnx_ir.Model) -> str:
    graph = DataflowGraph(model)
    return structural_hash(graph, graph.all_mask)


@given(st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_inlining_gives_back_the_prepared_model(
    random_model: Callable[..., onnx_ir.Model], evaluate: Evaluate, seed: int
) -> None:
    model = random_model(seed)
    graph = DataflowGraph(model)

    partitioned = apply_partitioning(random_partitioning(graph, random.Random(seed)))

    proto = onnx_ir.to_proto(partitioned)
    onnx.checker.check_model(proto)
    for got, expected in zip(evaluate(partitioned), evaluate(model), strict=True):
        np.testing.assert_array_equal(got, expected)
    again = onnx_ir.from_proto(proto)
    InlinePass()(again)
    assert not again.functions
    assert sorted(n.op_type for n in again.graph.all_nodes()) == sorted(n.op_type for n in model.graph.all_nodes())
    assert whole_hash(again) == whole_hash(model)
    assert [value.name for value in again.graph.outputs] == [value.name for value in model.graph.outputs]


@given(st.integers(0, 10_000))
@settings(max_examples=40, deadline=None)
def test_call_sites_compute_what_their_sub_graphs_compute_even_after_saving(
    random_model: Callable[..., onnx_ir.Model], evaluate: Evaluate, seed: int
) -> None:
    model = random_model(seed)
    graph = DataflowGraph(model)
    partitioning = random_partitioning(graph, random.Random(seed))
    partitioned = onnx_ir.from_proto(onnx_ir.to_proto(apply_partitioning(partitioning)))
    draw = np.random.default_rng(0)
    known = {name: draw.normal(size=(4, 4)).astype(np.float32) for name in ("x", "z")}
    expected = evaluate(model, known)
    sites = {site.node: site for site in call_sites(partitioned)}

    for node in partitioned.graph:
        if node not in sites:  # a view
            assert node.inputs[0] is not None
            data = known[str(node.inputs[0].name)]
            shape = spec_of(node.outputs[0]).static_shape
            known[str(node.outputs[0].name)] = data.reshape(shape)
            continue
        site = sites[node]
        function = site.kernel_function()
        assert not any(value.is_graph_input() and value.const_value for value in function.model.graph.inputs)
        feeds = {
            spec.name: known[str(value.name)]
            for spec, value in zip(function.inputs, site.data_inputs, strict=True)
            if value is not None
        }
        results = evaluate(function.model, feeds)
        known.update(zip((str(value.name) for value in site.outputs), results, strict=True))

    for value, reference in zip(partitioned.graph.outputs, expected, strict=True):
        np.testing.assert_array_equal(known[str(value.name)], reference)


TWO_LAYERS = """g (float[2,4] x) => (float[2,4] y)
<float[4,4] u = {1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16}, float[4,4] w = {2,2,3,4,5,6,7,8,9,10,11,12,13,14,15,17}> {
 a = MatMul(x, u) b = Relu(a) c = MatMul(b, w) y = Relu(c) }"""


def big_weights(model: onnx_ir.Model) -> onnx_ir.Model:
    """The same with weights too large to enter hashes by value."""
    proto = onnx_ir.to_proto(model)
    for tensor in proto.graph.initializer:
        data = np.arange(256, dtype=np.float32).reshape(16, 16) + len(tensor.name) + ord(tensor.name)
        tensor.CopyFrom(onnx.numpy_helper.from_array(data, tensor.name))
    proto.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 16
    proto.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 16
    del proto.graph.value_info[:]
    result: onnx_ir.Model = onnx_ir.from_proto(onnx.shape_inference.infer_shapes(proto))
    return result


def test_equal_kernels_of_one_target_share_a_function_with_their_weights_as_arguments(parsed: Parsed) -> None:
    graph = DataflowGraph(big_weights(parsed(TWO_LAYERS)))
    first, second = SubGraph(graph, 0b0011), SubGraph(graph, 0b1100)

    shared = apply_partitioning(
        Partitioning(graph, (CandidateKernel(first, SPECS[0]), CandidateKernel(second, SPECS[0])))
    )
    split = apply_partitioning(
        Partitioning(graph, (CandidateKernel(first, SPECS[0]), CandidateKernel(second, SPECS[1])))
    )

    assert len(shared.functions) == 1
    assert len(split.functions) == 2
    sites = call_sites(shared)
    assert [site.name for site in sites] == ["k0000", "k0001"]
    assert [[v.name for v in site.constants] for site in sites] == [["u"], ["w"]]
    assert [site.toolchain for site in call_sites(split)] == ["red", "blue"]
    hashes = [set(site.kernel_function().constants.values()) for site in sites]
    assert hashes[0] != hashes[1]
    assert json.loads(sites[0].node.metadata_props["collage.nodes"]) == list(first.names)


def test_a_call_site_gives_the_function_the_candidate_was_measured_as(parsed: Parsed) -> None:
    graph = DataflowGraph(parsed(TWO_LAYERS))
    parts = (Composite("red.dense", 0b0011, (("activation", "relu"),)),)
    sub_graph = SubGraph(graph, graph.all_mask, "red.whole", parts, (("depth", "2"),))
    model = apply_partitioning(Partitioning(graph, (CandidateKernel(sub_graph, SPECS[0]),)))
    [site] = call_sites(onnx_ir.from_proto(onnx_ir.to_proto(model)))

    measured, deployed = kernel_function(sub_graph, "f"), site.kernel_function()

    assert deployed.composite == measured.composite == "red.whole"
    assert deployed.model.metadata_props == measured.model.metadata_props == {"collage.composite.depth": "2"}
    assert [n.op_type for n in deployed.model.graph] == [n.op_type for n in measured.model.graph]
    [inner] = deployed.model.functions.values()
    assert inner.metadata_props["collage.composite"] == "red.dense"
    assert deployed.constants == measured.constants


def test_weights_are_hashed_when_asked_for_and_once(parsed: Parsed) -> None:
    graph = DataflowGraph(parsed(TWO_LAYERS))
    reads: list[str] = []

    class Counted(onnx_ir.Tensor):  # type: ignore[type-arg]
        def numpy(self) -> Any:
            reads.append("read")
            return super().numpy()

    big = onnx_ir.Value(name="big")
    big.const_value = Counted(np.zeros((64, 64), np.float32))
    graph.model.graph.initializers["u"].const_value = big.const_value

    functions = [kernel_function(SubGraph(graph, nodes), "f") for nodes in (0b0001, 0b0011, 0b1111)]
    assert reads == []
    assert len({function.constants["u"] for function in functions}) == 1
    assert reads == ["read"]


def test_bounds_survive_in_the_partitioned_model(parsed: Parsed) -> None:
    graph = DataflowGraph(
        parsed(
            "g (float[2,3] x) => (int64[M] z) { y = NonZero(x) i = ReduceSum<keepdims=0>(y, a) z = Neg(i) }".replace(
                "(int64[M] z)", "(int64[M] z) <int64[1] a = {0}>"
            )
        )
    )
    kernels = tuple(CandidateKernel(SubGraph(graph, 1 << index), SPECS[0]) for index in range(3))

    model = onnx_ir.from_proto(onnx_ir.to_proto(apply_partitioning(Partitioning(graph, kernels))))

    assert [spec_of(site.outputs[0]).bound for site in call_sites(model)] == [(2, 6), (6,), (6,)]
    assert [site.kernel_function().outputs[0].bound for site in call_sites(model)] == [(2, 6), (6,), (6,)]


@pytest.mark.parametrize("said", ["{", "[" * 100_000, "7", "[-1]", "[1.5]", "[1, 2]", str([1] * 65)])
def test_a_bound_that_is_none_is_refused(parsed: Parsed, said: str) -> None:
    [output] = parsed("g (float[4] x, bool[4] c) => (float[n] y) { y = Compress(x, c) }").graph.outputs
    output.metadata_props["collage.bound"] = said

    with pytest.raises(ModelError, match=r"value 'y': its metadata 'collage\.bound' is"):
        spec_of(output)


def test_partitioning_a_partitioned_model_again_keeps_its_kernels_whole(parsed: Parsed, evaluate: Evaluate) -> None:
    model = parsed(TWO_LAYERS)
    graph = DataflowGraph(model)
    once = apply_partitioning(
        Partitioning(graph, tuple(CandidateKernel(SubGraph(graph, n), SPECS[0]) for n in (0b0011, 0b1100)))
    )
    again = DataflowGraph(once)

    assert again.compilers == {0: "red", 1: "red"}
    twice = apply_partitioning(
        Partitioning(again, tuple(CandidateKernel(SubGraph(again, 1 << i), SPECS[0]) for i in range(2)))
    )

    x = np.ones((2, 4), np.float32)
    np.testing.assert_array_equal(evaluate(twice, {"x": x})[0], evaluate(model, {"x": x})[0])
    assert [len(site.kernel_function().model.graph) for site in call_sites(twice)] == [2, 2]


def test_call_sites_without_unique_names_are_refused(parsed: Parsed) -> None:
    graph = DataflowGraph(parsed(TWO_LAYERS))
    kernels = tuple(CandidateKernel(SubGraph(graph, 1 << index), SPECS[0]) for index in iterate_bits(graph.all_mask))
    model = apply_partitioning(Partitioning(graph, kernels))
    for node in model.graph:
        node.name = "k0000"

    with pytest.raises(ModelError, match="unique names"):
        call_sites(model)
