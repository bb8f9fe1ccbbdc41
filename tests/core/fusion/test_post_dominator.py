"""What TVM's documents say its `FuseOps` does, as a table of graphs and groups."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collage_core.contract import Target
from collage_core.fusion import (
    CandidateBounds,
    CombineByPrimitivesRule,
    FuseLimits,
    OpCallByKindRule,
    RuleContext,
    SubGraph,
    post_dominator_groups,
)
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits
from collage_core.ir.operators.op_kind import OpPatternKind

Parsed = Callable[..., onnx_ir.Model]

IMAGE = "float[1,4,8,8]"
WEIGHTS = "float[4,4,1,1] w, float[4,4,1,1] w2, float[4,4,1,1] w3"

CASES = {
    # The worked example of the architecture guide.
    "element-wise nodes go into the injective one after them": (
        "(float[1,20] x) => (float[20] s) {"
        " k = Constant<value_ints = [0]>() a = Add(x, x) e = Exp(a) s = Squeeze(e, k) }",
        "k | a e s",
    ),
    # The diamond it is drawn with.
    "a diamond after an anchor is one group with it": (
        f"({IMAGE} x, {WEIGHTS}) => ({IMAGE} y)"
        " { c = Conv(x, w) l = Relu(c) m = Tanh(c) r = Sigmoid(c) t = Add(l, m) y = Add(t, r) }",
        "c l m r t y",
    ),
    "a diamond with index work on one side is not": (
        "(float[4,4] x, float[4,4] w) => (float[4,4] y)"
        " { c = MatMul(x, w) l = Relu(c) t = Transpose<perm = [1, 0]>(c) y = Add(l, t) }",
        "c | l t y",
    ),
    "an anchor takes its bias and activation": (
        f"({IMAGE} x, {WEIGHTS}, float[4,1,1] b) => ({IMAGE} y) {{ c = Conv(x, w) a = Add(c, b) y = Relu(a) }}",
        "c a y",
    ),
    "an anchor that is broadcast is not read element by element": (
        "(float[1,4] x, float[4,4] w, float[4,4] z) => (float[4,4] y) { c = MatMul(x, w) y = Add(c, z) }",
        "c | y",
    ),
    "no two anchors are together": (
        f"({IMAGE} x, {WEIGHTS}) => ({IMAGE} y) {{ c = Conv(x, w) r = Relu(c) d = Conv(r, w2) y = Relu(d) }}",
        "c r | d y",
    ),
    "of two anchors whose results meet one gets the addition": (
        f"({IMAGE} x, {WEIGHTS}) => ({IMAGE} y)"
        " { p = Abs(x) c = Conv(p, w) n = Neg(c) s = Add(c, n) d = Conv(s, w2) e = Conv(s, w3) y = Add(d, e) }",
        "p | c n s | d y | e",
    ),
    "an anchor on one path keeps another out": (
        f"({IMAGE} x, {WEIGHTS}) => ({IMAGE} y) {{ c = Conv(x, w) r = Relu(c) d = Conv(c, w2) y = Add(r, d) }}",
        "c | r d y",
    ),
    "what an anchor's group also reads goes into it": (
        f"({IMAGE} x, {IMAGE} z, {WEIGHTS}) => ({IMAGE} y) {{ c = Conv(x, w) n = Neg(z) y = Add(c, n) }}",
        "c n y",
    ),
    "nothing goes into an anchor before it": (
        f"({IMAGE} x, {WEIGHTS}) => ({IMAGE} c) {{ n = Neg(x) c = Conv(n, w) }}",
        "n | c",
    ),
    "a reduction is where a group ends": (
        "(float[4,4] x) => (float[4,1] y) { a = Exp(x) b = Neg(a) r = ReduceMax(b) t = Exp(r) y = Neg(t) }",
        "a b r | t y",
    ),
    "index work does not go into a reduction": (
        "(float[4,8] x) => (float[8] r)"
        " { k = Constant<value_ints = [1]>() t = Transpose<perm = [1, 0]>(x) r = ReduceSum<keepdims = 0>(t, k) }",
        "k | t | r",
    ),
    "a softmax by hand is cut at its reductions": (
        "(float[4,4] x) => (float[4,4] y) { k = Constant<value_ints = [1]>()"
        " m = ReduceMax(x, k) d = Sub(x, m) e = Exp(d) s = ReduceSum(e, k) y = Div(e, s) }",
        "k | m | d e | s | y",
    ),
    "an opaque operator is a barrier": (
        "(float[4] x, int64 axis) => (float[4] y) { a = Relu(x) b = Exp(a) c = CumSum(b, axis) d = Neg(c) y = Abs(d) }",
        "a b | c | d y",
    ),
    "a random operator is a barrier": (
        "(float[4] x) => (float[4] y) { a = Relu(x) b = RandomNormalLike(a) y = Abs(b) }",
        "a | b | y",
    ),
    "a diamond around an opaque operator stays apart": (
        "(float[4] x, int64 axis) => (float[4] y) { a = Relu(x) b = CumSum(a, axis) c = Exp(a) y = Add(b, c) }",
        "a | b | c y",
    ),
    "index work goes with what follows, once anchors are done": (
        f"({IMAGE} x, {WEIGHTS}) => (float[8,8,4,1] y)"
        " { c = Conv(x, w) r = Relu(c) t = Transpose<perm = [3, 2, 1, 0]>(r) y = Exp(t) }",
        "c r | t y",
    ),
    "index work does not go into an anchor": (
        "(float[4,4] x, float[4,4] w) => (float[4,4] y) { t = Transpose<perm = [1, 0]>(x) y = MatMul(t, w) }",
        "t | y",
    ),
    "a Concat takes what it reads": (
        "(float[4] x, float[4] z) => (float[8] y) { a = Relu(x) b = Exp(z) c = Concat<axis = 0>(a, b) y = Neg(c) }",
        "a b c y",
    ),
    "a Concat does not take an anchor's result": (
        f"({IMAGE} x, {WEIGHTS}) => (float[1,8,8,8] y)"
        " { c = Conv(x, w) r = Relu(c) n = Neg(x) y = Concat<axis = 1>(r, n) }",
        "c r | n y",
    ),
    "a graph output is where a group ends": (
        "(float[4] x) => (float[4] a, float[4] y) { a = Relu(x) y = Exp(a) }",
        "a | y",
    ),
    "what goes into two outputs goes into neither": (
        "(float[4] x) => (float[4] y, float[4] z) { a = Relu(x) y = Exp(a) z = Neg(a) }",
        "a | y | z",
    ),
}

CHAIN = "(float[4] x, float[4] z) => (float[4] y) { a = Relu(x) b = Exp(a) c = Add(b, z) d = Neg(c) y = Abs(d) }"

LIMITED = {
    "no limit": (FuseLimits(max_nodes=None), "a b c d y"),
    "TVM's own limit": (FuseLimits(), "a b c d y"),
    "nodes": (FuseLimits(max_nodes=2), "a b | c d | y"),
    "depth": (FuseLimits(max_depth=3), "a b c | d y"),
    "inputs": (FuseLimits(max_inputs=1), "a b | c | d y"),
    "none together": (FuseLimits(max_depth=1), "a | b | c | d | y"),
}


def groups(model: onnx_ir.Model, limits: FuseLimits | None = None) -> set[frozenset[str]]:
    """Groups by the names of what their nodes give."""
    graph = DataflowGraph(model)
    return {
        frozenset(str(graph.nodes[index].outputs[0].name) for index in iterate_bits(nodes))
        for nodes in post_dominator_groups(graph, limits)
    }


def said(text: str) -> set[frozenset[str]]:
    return {frozenset(group.split()) for group in text.split("|")}


@pytest.mark.parametrize("name", CASES)
def test_groups_are_those_of_the_description(name: str, parsed: Parsed) -> None:
    text, expected = CASES[name]

    assert groups(parsed(f"g {text}")) == said(expected)


@pytest.mark.parametrize("name", LIMITED)
def test_limits_end_a_group(name: str, parsed: Parsed) -> None:
    limits, expected = LIMITED[name]

    assert groups(parsed(f"g {CHAIN}"), limits) == said(expected)


def test_a_chain_as_long_as_the_limit_is_one_group_and_a_longer_one_is_not(parsed: Parsed) -> None:
    def chain(length: int) -> onnx_ir.Model:
        steps = "".join(f" v{number} = Neg(v{number - 1})" for number in range(1, length + 1))
        return parsed(f"g (float[4] v0) => (float[4] v{length}) {{{steps} }}")

    assert [len(group) for group in groups(chain(256))] == [256]
    assert sorted(len(group) for group in groups(chain(257))) == [1, 256]


def test_a_limit_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        FuseLimits(max_depth=0)


@given(st.integers(0, 10_000), st.integers(3, 14))
@settings(max_examples=80, deadline=None)
def test_groups_could_be_one_kernel_and_the_closure_has_them_all(
    random_model: Callable[..., onnx_ir.Model], seed: int, size: int
) -> None:
    graph = DataflowGraph(random_model(seed, size))
    found = post_dominator_groups(graph)
    context = RuleContext(
        target=Target(toolchain="mock", fingerprint="1"), bounds=CandidateBounds(max_depth=64, max_candidates=100_000)
    )
    closure = {each.nodes for each in CombineByPrimitivesRule(OpCallByKindRule()).candidates(graph, context)}

    assert sum(found) == graph.all_mask
    assert len({index for nodes in found for index in iterate_bits(nodes)}) == sum(n.bit_count() for n in found)
    for nodes in found:
        kernels = graph.completed(nodes)
        if (kernels & graph.needs_kernel).bit_count() < 2:
            continue
        sub_graph = SubGraph(graph, kernels)
        kinds = [graph.kinds[index] for index in iterate_bits(kernels)]
        assert sub_graph.is_convex
        assert sub_graph.exits.bit_count() == 1
        assert kinds.count(OpPatternKind.OUT_ELEMENTWISE_FUSABLE) <= 1
        assert OpPatternKind.OPAQUE not in kinds
        for index in iterate_bits(kernels):
            assert graph.kinds[index] is not OpPatternKind.REDUCTION or not graph.successors[index] & kernels
        assert kernels in closure
