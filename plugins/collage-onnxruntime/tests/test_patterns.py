"""What is proposed to ONNX Runtime, before the library is asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from collage_core.contract import Supported, Unsupported
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.patterns import NodeContext
from collage_onnxruntime.patterns import takes

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
