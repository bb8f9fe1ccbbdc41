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
    ],
)
def test_values_it_would_compute_otherwise_are_refused(text: str, said: str) -> None:
    answer = first_node(text)
    assert isinstance(answer, Unsupported)
    assert said in answer.reason


def test_an_output_nobody_wants_is_no_reason() -> None:
    assert first_node("g (float[4,4] x) => (float[4,4] y) { y, = Dropout(x) }")
