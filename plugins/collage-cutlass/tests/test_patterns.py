"""What is refused, each with its reason and numbers; nothing is compiled."""

from __future__ import annotations

from typing import Any

import onnx_ir
import pytest

from collage_core.contract import Target
from collage_testing import GraphBuilder

from .cases import FLOAT16, convolution, product
from .machine import TARGET, TF32, proposals


def refusals(model: onnx_ir.Model, target: Target = TARGET) -> str:
    found = proposals(model, target)
    return "; ".join(reason for reasons in found.refusals.values() for reason in _texts(reasons))


def _texts(reasons: Any) -> list[str]:
    return [reasons] if isinstance(reasons, str) else [str(each) for each in reasons]


@pytest.mark.parametrize(
    ("model", "target", "reason"),
    [
        (product(a=(3, 30), b=(30, 8), dtype=FLOAT16), TARGET, "k=30 is not a multiple of 8"),
        (product(a=(3, 32), b=(32, 12), dtype=FLOAT16), TARGET, "n=12 is not a multiple of 8"),
        (product(a=(3, 30), b=(30, 8)), TF32, "k=30 is not a multiple of 4"),
        (product(dtype=FLOAT16), TF32, "precision=tf32 is a way to multiply float32"),
        (product(a=(16,), b=(16, 8)), TARGET, "it multiplies a vector"),
        (product(a=(2, 1, 3, 16), b=(1, 2, 16, 8)), TARGET, "broadcast against each other"),
        (product(dtype=onnx_ir.DataType.DOUBLE), TARGET, "it is about DOUBLE"),
        (convolution(x=(1, 3, 8, 8), kernel=(8, 3, 3, 3), dtype=FLOAT16), TARGET, "c=3 is not a multiple of 8"),
        (convolution(kernel=(8, 2, 3, 3), attributes={"group": 4}), TARGET, "it has 4 groups"),
        (convolution(x=(1, 2, 3, 3, 3), kernel=(2, 2, 1, 1, 1)), TARGET, "over 3 axes"),
    ],
)
def test_what_cannot_be_is_refused_with_its_numbers(model: onnx_ir.Model, target: Target, reason: str) -> None:
    found = proposals(model, target)

    assert found.candidates == ()
    assert reason in refusals(model, target)


def test_a_bias_along_the_rows_is_left_outside() -> None:
    found = proposals(product("Relu", bias=(3, 1)))

    assert [each.sub_graph.label for each in found.candidates] == ["cutlass.matmul"]


def test_a_value_that_others_read_too_ends_the_kernel() -> None:
    g = GraphBuilder("seen")
    value = g.op("MatMul", g.input("x", 4, 8), g.weight("w", 8, 8))
    active = g.op("Relu", value)
    model = g.model(g.op("Mul", active, active), g.op("Neg", value))

    assert {each.sub_graph.label for each in proposals(model).candidates} == {"cutlass.matmul"}


def test_a_transposed_convolution_is_refused_by_name() -> None:
    g = GraphBuilder("transposed")
    model = g.model(g.op("ConvTranspose", g.input("x", 1, 8, 5, 5), g.weight("w", 8, 8, 3, 3)))

    assert "gradient" in refusals(model)
