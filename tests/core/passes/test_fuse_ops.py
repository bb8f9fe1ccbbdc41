from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx_ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx_ir.passes import InPlacePass, Sequential
from onnx_ir.passes.common import InlinePass

from collage_core.contract import Unsupported
from collage_core.fusion import FuseLimits
from collage_core.ir.graph.canonical import structural_hash
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.passes.fuse_ops import FuseOps, FuseOpsByPattern
from collage_core.patterns import FusionPattern, is_constant, is_op, wildcard
from collage_testing.graphs import GraphBuilder

Parsed = Callable[..., onnx_ir.Model]
Evaluate = Callable[..., list[Any]]

WIDTH = 80
"""Weights up to 64 elements are part of a structure; larger ones are arguments."""
X = np.linspace(-1, 1, 2 * WIDTH, dtype=np.float32).reshape(2, WIDTH)


def two_layers() -> onnx_ir.Model:
    """Two dense layers of equal shapes, and a softmax: `matmul_0 add_0 relu_0 matmul_1 add_1 relu_1 softmax_0`."""
    g = GraphBuilder()
    value = g.input("x", 2, WIDTH)
    for layer in range(2):
        value = g.op("MatMul", value, g.weight(f"w{layer}", WIDTH, WIDTH))
        value = g.op("Relu", g.op("Add", value, g.weight(f"b{layer}", WIDTH)))
    return g.model(g.op("Softmax", value, axis=-1))


def dense(name: str = "blas.dense", **rest: Any) -> FusionPattern:
    return FusionPattern(
        name=name, pattern=is_op("Add")(is_op("MatMul")(wildcard(), is_constant()), is_constant()), **rest
    )


def planned(model: onnx_ir.Model) -> dict[str, tuple[str, str, tuple[str, ...]]]:
    """By call of a marked function: its label, its toolchain, and the nodes it stands for."""
    found = {}
    for node in model.graph:
        function = model.functions.get(node.op_identifier())
        if function is not None and "collage.primitive" in function.metadata_props:
            facts = function.metadata_props
            nodes = tuple(json.loads(node.metadata_props["collage.nodes"]))
            found[str(node.name)] = (facts["collage.composite"], facts["collage.compiler"], nodes)
    return found


def text(model: onnx_ir.Model) -> bytes:
    return onnx_ir.to_proto(model).SerializeToString(deterministic=True)


def test_an_anchor_with_its_epilogue_becomes_one_function_that_equal_layers_share() -> None:
    model = two_layers()

    result = FuseOps()(model)

    assert result.modified
    assert planned(model) == {
        "relu_0": ("", "", ("matmul_0", "add_0", "relu_0")),
        "relu_1": ("", "", ("matmul_1", "add_1", "relu_1")),
    }
    assert [node.op_type for node in model.graph][-1] == "Softmax"
    assert len(model.functions) == 1


@given(st.integers(0, 10_000), st.integers(3, 12))
@settings(max_examples=50, deadline=None)
def test_fused_models_compute_the_same_and_fusing_again_changes_nothing(
    random_model: Callable[..., onnx_ir.Model], evaluate: Evaluate, seed: int, size: int
) -> None:
    model = random_model(seed, size)
    graph = DataflowGraph(model)
    expected, hashed = evaluate(model), structural_hash(graph, graph.all_mask)

    FuseOps()(model)

    proto = onnx_ir.to_proto(model)
    onnx.checker.check_model(proto)
    for got, right in zip(evaluate(model), expected, strict=True):
        np.testing.assert_array_equal(got, right)
    once = text(model)
    assert not FuseOps()(model).modified
    assert text(model) == once
    again = onnx_ir.from_proto(proto)
    assert not FuseOps()(again).modified
    InlinePass()(again)
    inlined = DataflowGraph(again)
    assert structural_hash(inlined, inlined.all_mask) == hashed


def test_limits_reach_the_groups() -> None:
    model = two_layers()

    FuseOps(FuseLimits(max_nodes=2))(model)

    assert [nodes for _, _, nodes in planned(model).values()] == [
        ("matmul_0", "add_0"),
        ("matmul_1", "add_1"),
        ("relu_1", "softmax_0"),
    ]


def test_the_first_pattern_that_matches_wins() -> None:
    model = two_layers()
    with_relu = FusionPattern(name="blas.dense_relu", pattern=is_op("Relu")(dense().pattern))
    other = two_layers()

    FuseOpsByPattern([with_relu, dense()], toolchain="blas")(model)
    FuseOpsByPattern([dense(), with_relu], toolchain="blas")(other)

    assert {(label, toolchain) for label, toolchain, _ in planned(model).values()} == {("blas.dense_relu", "blas")}
    assert {nodes for _, _, nodes in planned(other).values()} == {("matmul_0", "add_0"), ("matmul_1", "add_1")}


def test_a_pattern_of_higher_priority_wins_wherever_it_comes() -> None:
    model = two_layers()
    with_relu = FusionPattern(name="blas.dense_relu", pattern=is_op("Relu")(dense().pattern), priority=1)

    FuseOpsByPattern([dense(), with_relu])(model)

    assert {label for label, _, _ in planned(model).values()} == {"blas.dense_relu"}


def test_of_matches_that_overlap_the_one_nearest_the_end_is_taken(parsed: Parsed) -> None:
    model = parsed("g (float[4] x) => (float[4] y) { a = Neg(x) b = Neg(a) y = Neg(b) }")

    FuseOpsByPattern([FusionPattern(name="pair", pattern=is_op("Neg")(is_op("Neg")(wildcard())))])(model)

    assert [nodes for _, _, nodes in planned(model).values()] == [("Neg_1", "Neg_2")]


def test_a_check_refuses_and_attributes_go_with_the_function() -> None:
    refused, kept = two_layers(), two_layers()

    changed = FuseOpsByPattern([dense(check=lambda found: Unsupported("never"))])(refused).modified
    FuseOpsByPattern([dense(attrs_getter=lambda found: {"root": found.graph.names[found.root]})])(kept)

    assert not changed
    assert not refused.functions
    assert {f.metadata_props["collage.composite.root"] for f in kept.functions.values()} == {"add_0", "add_1"}


@pytest.mark.parametrize("bind", [False, True])
def test_constants_are_arguments_or_inside(bind: bool, evaluate: Evaluate) -> None:
    model = two_layers()
    [expected] = evaluate(model, {"x": X})

    FuseOpsByPattern([dense()], bind_constants=bind)(model)

    calls = [node for node in model.graph if node.op_identifier() in model.functions]
    assert [len(call.inputs) for call in calls] == ([1, 1] if bind else [3, 3])
    assert len(model.functions) == (2 if bind else 1)
    assert len(model.graph.initializers) == (0 if bind else 4)
    onnx.checker.check_model(onnx_ir.to_proto(model))
    np.testing.assert_array_equal(evaluate(model, {"x": X})[0], expected)


def test_matches_that_would_wait_for_each_other_are_not_both_taken(parsed: Parsed, evaluate: Evaluate) -> None:
    model = parsed(
        "g (float[4] x, float[4] z) => (float[4] p, float[4] q)"
        " { a = Neg(x) b = Exp(z) c = Add(a, b) d = Sub(b, a) p = Relu(c) q = Tanh(d) }"
    )
    both = [
        FusionPattern(name="left", pattern=is_op("Add")(is_op("Neg")(wildcard()), wildcard())),
        FusionPattern(name="right", pattern=is_op("Sub")(is_op("Exp")(wildcard()), wildcard())),
    ]
    feeds = {name: np.arange(4, dtype=np.float32) for name in "xz"}
    expected = evaluate(model, feeds)

    FuseOpsByPattern(both)(model)

    assert [label for label, _, _ in planned(model).values()] == ["left"]
    for got, right in zip(evaluate(model, feeds), expected, strict=True):
        np.testing.assert_array_equal(got, right)


def test_a_match_whose_value_comes_back_in_is_left_alone(parsed: Parsed) -> None:
    model = parsed("g (float[4] x) => (float[4] y) { a = Neg(x) b = Exp(a) y = Add(a, b) }")

    changed = FuseOpsByPattern(
        [FusionPattern(name="hollow", pattern=is_op("Add")(is_op("Neg")(wildcard()), wildcard()))]
    )

    assert not changed(model).modified


def test_a_quantised_operator_is_not_split() -> None:
    g = GraphBuilder()
    scale, zero = g.constant("s", np.float32(0.1)), g.constant("z", np.int8(0))
    narrow = g.op("QuantizeLinear", g.input("x", 4, 4), scale, zero)
    wide = g.op("DequantizeLinear", narrow, scale, zero)
    model = g.model(g.op("QuantizeLinear", g.op("Relu", g.op("Neg", wide)), scale, zero))
    pair = FusionPattern(name="pair", pattern=is_op("Relu")(is_op("Neg")(wildcard())))

    assert not FuseOps()(model).modified
    assert not FuseOpsByPattern([pair])(model).modified


PASSES: dict[str, Callable[[], InPlacePass]] = {
    "pattern": lambda: FuseOpsByPattern([dense()], toolchain="blas"),
    "native": FuseOps,
    "other pattern": lambda: FuseOpsByPattern([dense("late.dense")], toolchain="late"),
}


def test_a_pattern_pass_before_a_native_pass_plans_nothing_twice(evaluate: Evaluate) -> None:
    model = two_layers()
    [expected] = evaluate(model, {"x": X})

    Sequential(PASSES["pattern"](), PASSES["native"](), PASSES["other pattern"](), PASSES["native"]())(model)

    found = planned(model)
    assert {call: facts[:2] for call, facts in found.items()} == {
        "add_0": ("blas.dense", "blas"),
        "add_1": ("blas.dense", "blas"),
        "softmax_0": ("", ""),  # with the element-wise node before it
    }
    nodes = [node for _, _, names in found.values() for node in names]
    assert len(nodes) == len(set(nodes))
    np.testing.assert_array_equal(evaluate(model, {"x": X})[0], expected)


@pytest.mark.parametrize("order", list(itertools.permutations(PASSES)), ids="-".join)
def test_in_any_order_no_node_is_in_two_kernels_and_no_kernel_in_another(
    order: tuple[str, ...], random_model: Callable[..., onnx_ir.Model], evaluate: Evaluate
) -> None:
    for seed in range(6):
        model = random_model(seed, 9)
        expected = evaluate(model)
        before = {str(node.name) for node in model.graph}
        Sequential(*(PASSES[name]() for name in order))(model)
        once = text(model)

        nodes = [node for _, _, names in planned(model).values() for node in names]
        assert len(nodes) == len(set(nodes))
        assert set(nodes) <= before
        for function in model.functions.values():
            assert not any(node.op_identifier() in model.functions for node in function)
        Sequential(*(PASSES[name]() for name in order))(model)
        assert text(model) == once
        for got, right in zip(evaluate(model), expected, strict=True):
            np.testing.assert_array_equal(got, right)
