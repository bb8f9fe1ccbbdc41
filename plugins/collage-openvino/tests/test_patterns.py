"""What is proposed to OpenVINO, before the library is asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from collage_core.contract import Supported, Unsupported
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.patterns import NodeContext
from collage_openvino.patterns import takes

Make = Callable[..., Any]


def first_node(make: Make, text: str) -> Supported | Unsupported:
    return takes(NodeContext(DataflowGraph(make(text).function.model), 0))


@pytest.mark.parametrize("operator", ["Relu", "com.microsoft.FastGelu"])
def test_operators_of_its_domains_are_proposed(operator: str, make: Make) -> None:
    assert first_node(make, f"g (float[4] x) => (float[4] y) {{ y = {operator}(x) }}")


def test_other_domains_are_refused_by_name(make: Make) -> None:
    answer = first_node(make, "g (float[4] x) => (float[4] y) { y = local.Thing(x) }")
    assert isinstance(answer, Unsupported)
    assert "'local'" in answer.reason


def test_a_function_of_the_model_is_proposed(make: Make) -> None:
    assert first_node(
        make,
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
def test_values_it_would_compute_otherwise_are_refused(text: str, said: str, make: Make) -> None:
    answer = first_node(make, text)
    assert isinstance(answer, Unsupported)
    assert said in answer.reason


def test_an_output_nobody_wants_is_no_reason(make: Make) -> None:
    assert first_node(make, "g (float[4,4] x) => (float[4,4] y) { y, = Dropout(x) }")
