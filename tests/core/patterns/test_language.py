"""What the comparison with an enumeration does not say: conditions on nodes, refusals, and mistakes in patterns."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir
import pytest

from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.operators.op_kind import OpPatternKind
from collage_core.patterns import (
    Match,
    Mismatch,
    any_op,
    chain,
    dominates,
    is_constant,
    is_input,
    is_op,
    match,
    variadic,
    wildcard,
)
from collage_testing import GraphBuilder
from collage_testing import chain as chain_model

Parsed = Callable[..., onnx_ir.Model]


def test_an_attribute_that_is_not_set_has_onnxs_default(parsed: Parsed) -> None:
    text = "g (float[2,3] x, float[3,4] w) => (float[2,4] y) { y = Gemm<alpha=0.1>(x, w) }"
    graph = DataflowGraph(parsed(text))

    assert match(is_op("Gemm").has_attr(beta=1, transB=0), graph, 0)
    assert match(is_op("Gemm").has_attr(alpha=0.1), graph, 0)  # which ONNX keeps in float32
    assert not match(is_op("Gemm").has_attr(transB=1), graph, 0)
    assert match(is_op("Gemm").has_attr(nonsense=lambda value: value is None), graph, 0)


def test_lists_are_lists(parsed: Parsed) -> None:
    graph = DataflowGraph(parsed("g (float[2,3] x) => (float[3,2] y) { y = Transpose<perm=[1,0]>(x) }"))

    assert match(is_op("Transpose").has_attr(perm=[1, 0]), graph, 0)
    assert match(is_op("Transpose").has_attr(perm=(1, 0)), graph, 0)
    assert not match(is_op("Transpose").has_attr(perm=[1]), graph, 0)


def test_versions_are_those_of_the_domain(parsed: Parsed) -> None:
    text = "g (float[2] x) => (float[2] y) { y = Relu(x) }"

    assert match(is_op("Relu").has_version(14, 18), DataflowGraph(parsed(text, opset=18)), 0)
    newer = match(is_op("Relu").has_version(last=18), DataflowGraph(parsed(text, opset=21)), 0)
    assert isinstance(newer, Mismatch)
    assert newer.reason == "Relu_0 is Relu of version 21, not any to 18"


def test_operators_of_any_type_have_a_kind_and_any_other_condition() -> None:
    graph = DataflowGraph(chain_model("Relu", "Softmax"))
    elementwise = any_op().has_kind(OpPatternKind.ELEMENTWISE)

    assert match(elementwise, graph, 0)
    refused = match(elementwise, graph, 1)
    assert isinstance(refused, Mismatch)
    assert refused.reason == "softmax_0 is not of kind ELEMENTWISE"
    assert not match(any_op("com.microsoft"), graph, 0)
    assert match(any_op().which(lambda node: len(node.outputs) == 1, "one output"), graph, 1)


def test_domains_are_told_apart() -> None:
    g = GraphBuilder()
    x = g.input("x", 2)
    graph = DataflowGraph(g.model(g.op("Add", x, g.op("Relu", x), domain="my.domain")))

    assert not match(is_op("Add"), graph, 1)
    assert match(is_op("my.domain::Add")(wildcard(), is_op("Relu")), graph, 1)
    assert not match(is_op("my.domain::Add")(is_op("Relu"), wildcard()), graph, 1)  # ONNX's Add is commutative
    assert match(is_op("my.domain::Add")(is_op("Relu"), wildcard()).in_any_order(), graph, 1)


def test_a_failure_tells_how_far_it_got_and_what_it_had(parsed: Parsed) -> None:
    text = "g (float[2] x) => (float[2] y) { a = Exp(x) b = Neg(a) y = Sub(b, x) }"
    pattern = is_op("Sub")(is_op("Neg")(is_op("Exp")(wildcard().named("x"))).named("left"), is_constant())

    found = match(pattern, DataflowGraph(parsed(text)), 2)

    assert isinstance(found, Mismatch)
    assert found.reason == "'x' is not a constant"
    assert found.nodes == 0b111
    assert {name: value.name for name, value in found.captures.items()} == {"x": "x", "left": "b"}


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        (is_op("Exp").used_once(), "'exp_0' is read by 2 nodes, not by one alone"),
        (is_op("Exp").used_by(is_op("Abs")), "neg_0 is Neg, not Abs"),
        (is_op("Exp") & ~is_op("Exp", "Tanh"), "'exp_0' is what the pattern excludes"),
        (is_input(), "'exp_0' is not the graph's input"),
        (is_op("Exp")(is_input("z")), "'x' is not the graph's input z"),
    ],
)
def test_refusals_say_what_is_read_how_and_by_whom(condition: object, reason: str) -> None:
    g = GraphBuilder()
    value = g.op("Exp", g.input("x", 4))
    graph = DataflowGraph(g.model(g.op("Sub", g.op("Neg", value), value)))

    found = match(is_op("Sub")(wildcard(), condition), graph, 2)  # type: ignore[arg-type]

    assert isinstance(found, Mismatch)
    assert found.reason == reason


def test_what_dominates_nothing_says_so() -> None:
    g = GraphBuilder()
    value = g.op("Exp", g.input("x", 4))
    graph = DataflowGraph(g.model(g.op("Neg", value), value))

    found = match(dominates(is_op("Exp"), wildcard(), is_op("Neg")), graph, graph.index_of("neg_0"))

    assert isinstance(found, Mismatch)
    assert found.reason == "not all that is made of any earlier value goes through neg_0"


def test_a_path_may_be_longer_than_python_may_recur() -> None:
    graph = DataflowGraph(chain_model("Exp", *["Relu"] * 350, "Tanh"))

    found = match(dominates(is_op("Exp"), is_op("Relu"), is_op("Tanh")), graph, 351)

    assert isinstance(found, Match)
    assert found.nodes == graph.all_mask


def test_deep_sums_that_do_not_match_are_refused_without_trying_every_order() -> None:
    """Each of 24 commutative operators has two orders, of which none leads to the constant at the end."""
    g = GraphBuilder()
    value, pattern = g.input("x", 4), is_constant()
    for _ in range(24):
        value = g.op("Add", value, value)
        pattern = is_op("Add")(pattern, wildcard())  # type: ignore[assignment]
    graph = DataflowGraph(g.model(value))

    assert not match(pattern, graph, 23)


def test_mistakes_are_told_where_they_are_made() -> None:
    p = wildcard()
    with pytest.raises(TypeError, match="neither true nor false"):
        bool(p)
    with pytest.raises(TypeError, match="only an operator"):
        p >> is_constant()
    with pytest.raises(TypeError, match="only an operator"):
        chain(p, p)
    with pytest.raises(TypeError, match="only comes last"):
        is_op("Concat")(variadic(p), p)
    with pytest.raises(TypeError, match="a pattern or a function"):
        variadic("Relu")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a pattern or a function"):
        dominates(p, "Relu", p)  # type: ignore[arg-type]
    graph = DataflowGraph(chain_model("Relu"))
    with pytest.raises(TypeError, match="str at 0, not a pattern"):
        match(is_op("Relu")(variadic(lambda place: "Relu")), graph, 0)  # type: ignore[arg-type, return-value]


def test_chains_pass_through_names_conditions_and_choices() -> None:
    graph = DataflowGraph(chain_model("Exp", "Relu", "Tanh"))
    pattern = is_op("Exp") >> (is_op("Abs") | is_op("Relu")).named("middle") >> is_op("Tanh").has_dtype("FLOAT")

    found = match(pattern, graph, 2)

    assert isinstance(found, Match)
    assert found.nodes == 0b111
    assert found.node("middle").name == "relu_0"
