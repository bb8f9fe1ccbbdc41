"""What the reference cannot compute is asked of one toolchain after the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx_ir
import pytest

from collage.reference import Fallback
from collage.setup.reference_fallback import _first_able
from collage_core.errors import EvaluationError
from collage_testing import chain

pytestmark = pytest.mark.guards(
    "a toolchain that computes what the reference cannot fails", "the next exact one is asked", area="toolchains"
)


def failing(reason: str) -> Fallback:
    def compute(model: onnx_ir.Model, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        model.graph.inputs.clear()  # it may do with the model what it likes
        raise EvaluationError("relu_0", "Relu", reason)

    return compute


def able(model: onnx_ir.Model, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    return {str(value.name): inputs for value in model.graph.inputs}


def test_one_that_fails_leaves_the_node_to_the_next() -> None:
    model = chain("Relu")

    assert _first_able([failing("a: crash"), able])(model, {"x": 1}) == {"x": {"x": 1}}


def test_where_all_fail_each_says_why() -> None:
    with pytest.raises(EvaluationError, match="a: crash; b: refused") as caught:
        _first_able([failing("a: crash"), failing("b: refused")])(chain("Relu"), {})

    assert caught.value.node_name == "relu_0"
