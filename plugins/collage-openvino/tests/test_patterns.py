"""What is proposed to OpenVINO, before the library is asked."""

from __future__ import annotations

import pytest

from collage_core.contract import Supported, Unsupported
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.patterns import NodeContext
from collage_openvino.patterns import takes
from collage_testing.kit.written import written


def first_node(text: str) -> Supported | Unsupported:
    return takes(NodeContext(DataflowGraph(written(text).function.model), 0))


def first_node_of(text: str, *operators: str) -> Supported | Unsupported:
    graph = DataflowGraph(written(text).function.model)
    index = next(index for index, node in enumerate(graph.nodes) if node.op_type in operators)
    return takes(NodeContext(graph, index))


@pytest.mark.parametrize("operator", ["Relu", "com.microsoft.FastGelu"])
def test_operators_of_its_domains_are_proposed(operator: str) -> None:
    assert first_node(f"g (float[4] x) => (float[4] y) {{ y = {operator}(x) }}")


def test_other_domains_are_refused_by_name() -> None:
    answer = first_node("g (float[4] x) => (float[4] y) { y = local.Thing(x) }")
    assert isinstance(answer, Unsupported)
    assert "'local'" in answer.reason


def test_a_function_of_the_model_is_proposed() -> None:
    assert first_node(
        "g (float[4] x) => (float[4] y) { y = local.twice(x) } "
        '<domain: "local", opset_import: ["": 20]> twice (a) => (b) { b = Add(a, a) }',
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("g (double[4] x) => (double[4] y) { y = Exp(x) }", "float64"),
        ("g (string[4] x) => (string[4] y) { y = Identity(x) }", "strings"),
        ("g (float[4] x) => (seq(float) y) { y = SequenceConstruct(x) }", "sequences"),
        ("g (uint8[4] x) => (uint8[4] y) { y = Add(x, x) }", "saturate"),
        ("g (int32[4] x, int32[4] z) => (int32[4] y) { y = Div(x, z) }", "float32"),
        ("g (int64[4] x) => (int64[4] y) <int64 c = {13}> { y = Mod(x, c) }", "float32"),
        ("g (int64[4,4] x) => (int64[4,4] y) { y = MatMul(x, x) }", "float32"),
        ('g (uint32[4] x) => (uint32[4] y) { y = BitShift<direction="RIGHT">(x, x) }', "BitShift"),
    ],
)
def test_values_it_would_compute_otherwise_are_refused(text: str, said: str) -> None:
    answer = first_node(text)
    assert isinstance(answer, Unsupported)
    assert said in answer.reason


@pytest.mark.parametrize(
    "text",
    [
        "g (float[4] x) => (float[4] y) { y = Div(x, x) }",
        "g (float[4,9] x) => (int64[4] y) <int64 c = {3}> { i = ArgMax<axis=1, keepdims=0>(x) y = Mod(i, c) }",
        "g (float[9] x) => (int64[2] y) <int64 c = {3}, int64[1] k = {2}> { v, i = TopK(x, k) y = Div(i, c) }",
        "g (float[n,9] x) => (int64[2] y) <int64 c = {3}> { a = Shape(x) b = Add(a, c) y = Div(b, c) }",
    ],
)
def test_sizes_and_positions_are_divided(text: str) -> None:
    assert first_node_of(text, "Div", "Mod") == Supported()


IF = (
    "g (bool c, float[4] x) => (float[4] y) {{ y = If(c) <then_branch = t () => (float[4] p) {{ {} }}, "
    "else_branch = e () => (float[4] q) {{ q = Neg(x) }}> }}"
)


@pytest.mark.parametrize(
    ("branch", "said"),
    [
        ("a = Cast<to=2>(x) b = Add(a, a) p = Cast<to=1>(b)", "saturate"),
        ("a = Cast<to=11>(x) b = Exp(a) p = Cast<to=1>(b)", "float64"),
        ("p = local.Thing(x)", "'local'"),
    ],
)
def test_what_is_refused_in_the_graph_is_refused_in_a_branch_that_the_reference_may_not_take(
    branch: str, said: str
) -> None:
    assert first_node(IF.format("p = Exp(x)")) == Supported()

    answer = first_node(IF.format(branch))

    assert isinstance(answer, Unsupported)
    assert said in answer.reason


def test_an_output_nobody_wants_is_no_reason() -> None:
    assert first_node("g (float[4,4] x) => (float[4,4] y) { y, = Dropout(x) }")
