from __future__ import annotations

import random
from collections.abc import Callable

import onnx_ir
from hypothesis import given, settings
from hypothesis import strategies as st

from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits

Parsed = Callable[..., onnx_ir.Model]


def reachable(step: tuple[int, ...], start: int) -> int:
    seen, stack = 0, [start]
    while stack:
        for index in iterate_bits(step[stack.pop()]):
            if not seen >> index & 1:
                seen |= 1 << index
                stack.append(index)
    return seen


@given(st.integers(0, 10_000))
@settings(max_examples=50, deadline=None)
def test_masks_agree_with_walking_the_graph(random_model: Callable[..., onnx_ir.Model], seed: int) -> None:
    graph = DataflowGraph(random_model(seed, 10))

    assert len(set(graph.names)) == len(graph) <= len(graph.model.graph)
    for index in range(len(graph)):
        assert graph.predecessors[index] < 1 << index
        assert graph.ancestors[index] == reachable(graph.predecessors, index)
        assert graph.descendants[index] == reachable(graph.successors, index)
        assert graph.index_of(graph.names[index]) == index


@given(st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_a_post_dominator_is_on_every_path_to_an_output(random_model: Callable[..., onnx_ir.Model], seed: int) -> None:
    graph = DataflowGraph(random_model(seed, 8))

    for index, dominator in enumerate(graph.post_dominators):
        others = []
        for other in iterate_bits(graph.descendants[index]):
            kept = tuple(0 if i == other else mask for i, mask in enumerate(graph.successors))
            escapes = (reachable(kept, index) & ~(1 << other) | 1 << index) & graph.outputs_mask
            if not escapes:
                others.append(other)
        assert dominator == min(others, default=len(graph))


@given(st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_completed_sets_share_no_view(random_model: Callable[..., onnx_ir.Model], seed: int) -> None:
    rng = random.Random(seed)
    graph = DataflowGraph(random_model(seed, 10))
    left = rng.randrange(graph.all_mask + 1)
    right = graph.all_mask & ~left

    a, b = graph.completed(left), graph.completed(right)

    assert a & b == 0
    assert a & graph.needs_kernel == left & graph.needs_kernel
    for index in iterate_bits(a & graph.host_mask):
        assert graph.predecessors[index] & a
        assert graph.successors[index] & a


def test_branches_are_kept_together(parsed: Parsed) -> None:
    graph = DataflowGraph(
        parsed(
            """g (float[4] x) => (float[4] y) {
            a1 = Relu(x) b1 = Neg(x) a2 = Exp(a1) b2 = Abs(b1) a3 = Sqrt(a2) y = Add(a3, b2) }"""
        )
    )

    assert [node.op_type for node in graph.nodes] == ["Relu", "Exp", "Sqrt", "Neg", "Abs", "Add"]


def test_values_captured_by_bodies_are_inputs(parsed: Parsed) -> None:
    graph = DataflowGraph(
        parsed(
            """g (bool c, float[2] x) => (float[2] y) {
            a = Relu(x)
            y = If(c) <then_branch = t () => (float[2] p) { p = Neg(a) },
                       else_branch = e () => (float[2] q) { q = If(c) <
                           then_branch = tt () => (float[2] r) { r = Exp(x) },
                           else_branch = ee () => (float[2] s) { s = Abs(a) }> }> }"""
        )
    )

    assert graph.predecessors == (0, 1)
    assert [value.name for value in graph.operands[1] if value is not None] == ["c", "a", "x"]


def test_views_of_static_shape_are_host_work(parsed: Parsed) -> None:
    graph = DataflowGraph(
        parsed(
            """g (float[2,3] x, int64[1] s) => (float[6] y, float[N] z, float[3,2] t)
            <int64[1] six = {6}> { a = Relu(x) y = Reshape(a, six) z = Reshape(a, s) t = Transpose(a) }"""
        )
    )

    assert [graph.nodes[index].outputs[0].name for index in iterate_bits(graph.host_mask)] == ["y"]


def test_missing_and_repeated_names_are_made_unique(parsed: Parsed) -> None:
    model = parsed("g (float[2] x) => (float[2] y) { a = Relu(x) b = Relu(a) y = Relu(b) }")
    for node, name in zip(model.graph, ["same", "same", ""], strict=True):
        node.name = name

    assert len(set(DataflowGraph(model).names)) == 3
    assert DataflowGraph(model).names[0] == "same"


def test_post_dominators(parsed: Parsed) -> None:
    graph = DataflowGraph(parsed("g (float[2] x) => (float[2] y) { a = Relu(x) b = Neg(a) c = Exp(a) y = Add(b, c) }"))

    assert graph.post_dominators == (3, 3, 3, 4)


def test_nodes_no_output_depends_on_are_left_out(parsed: Parsed) -> None:
    graph = DataflowGraph(parsed("g (float[2] x) => (float[2] y) { dead = Exp(x) y = Relu(x) alsodead = Neg(y) }"))

    assert [node.op_type for node in graph.nodes] == ["Relu"]
    assert graph.successors == (0,)


def test_an_operator_is_found_wherever_it_may_read_float32() -> None:
    graph = DataflowGraph(
        onnx_ir.from_onnx_text(
            """<ir_version: 10, opset_import: ["" : 21, "mine" : 1, "foreign" : 1]>
            g (float[2,2] x, float16[2,2] h, bool c) => (float[2,2] y) {
                a = MatMul(x, x)
                n = Relu(a)
                p = MatMul(h, h)
                q = MatMul(p, h)
                w = Cast<to = 1>(q)
                f = mine.calls(n)
                s = mine.adds(f)
                o = foreign.Whatever(s)
                i = If(c) <
                    then_branch = t () => (float[2,2] t1) { t1 = MatMul(o, w) },
                    else_branch = e () => (float[2,2] e1) { e1 = Add(o, w) }
                >
                j = If(c) <
                    then_branch = u () => (float[2,2] u1) { u1 = Add(i, w) },
                    else_branch = v () => (float[2,2] v1) { v1 = Sub(i, w) }
                >
                y = Softmax(j)
            }
            <domain: "mine", opset_import: ["" : 21]> calls (a) => (b) { t = Transpose(a)  b = MatMul(a, t) }
            <domain: "mine", opset_import: ["" : 21]> adds (a) => (b) { b = Add(a, a) }"""
        )
    )

    found = graph.float32_operators(frozenset({"MatMul"}))

    outputs = {str(graph.nodes[index].outputs[0].name) for index in iterate_bits(found)}
    # of the two products of float16, one reads a value of which no type is known
    assert outputs == {"a", "q", "f", "o", "i"}
