"""What is taken, and what is refused with which reason."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir
import pytest

from collage_testing import GraphBuilder, dense

from .machine import TF32, proposals

INT32, FLOAT16, DOUBLE = onnx_ir.DataType.INT32, onnx_ir.DataType.FLOAT16, onnx_ir.DataType.DOUBLE


def test_a_product_is_offered_alone_with_bias_and_with_activation() -> None:
    found = proposals(dense(activation="Relu"))

    assert {each.sub_graph.names: each.sub_graph.label for each in found.candidates} == {
        ("matmul_0",): "cublas.matmul",
        ("matmul_0", "add_0"): "cublas.matmul_bias",
        ("matmul_0", "add_0", "relu_0"): "cublas.matmul_bias_relu",
    }
    epilogues = {dict(each.sub_graph.attributes)["epilogue"] for each in found.candidates}
    assert epilogues == {"none", "bias", "bias+relu"}
    assert not found.refusals


def gelu_by_erf(g: GraphBuilder) -> onnx_ir.Value:
    return g.op("Gelu", g.op("MatMul", g.input("x", 4, 8), g.weight("w", 8, 4)))


def gelu_by_erf_written_out(g: GraphBuilder) -> onnx_ir.Value:
    x = g.op("MatMul", g.input("x", 4, 8), g.weight("w", 8, 4))
    erf = g.op("Erf", g.op("Div", x, g.constant("root", np.float32(np.sqrt(2)))))
    return g.op(
        "Mul", g.op("Mul", x, g.op("Add", erf, g.constant("one", np.float32(1)))), g.constant("h", np.float32(0.5))
    )


def after_activation(g: GraphBuilder) -> onnx_ir.Value:
    product = g.op("MatMul", g.input("x", 4, 8), g.weight("w", 8, 4))
    return g.op("Add", g.op("Relu", product), g.op("Neg", g.input("r", 4, 4)))


def bias_along_rows(g: GraphBuilder) -> onnx_ir.Value:
    return g.op("Add", g.op("MatMul", g.input("x", 4, 8), g.weight("w", 8, 4)), g.weight("b", 4, 1))


def bias_that_is_a_scalar(g: GraphBuilder) -> onnx_ir.Value:
    return g.op("Add", g.op("MatMul", g.input("x", 4, 8), g.weight("w", 8, 4)), g.constant("b", np.float32(2)))


def residual_in_rows(g: GraphBuilder) -> onnx_ir.Value:
    return g.op("Add", g.op("MatMul", g.input("x", 2, 4, 8), g.weight("w", 8, 4)), g.op("Neg", g.input("r", 2, 1, 4)))


def larger_sum(g: GraphBuilder) -> onnx_ir.Value:
    return g.op("Add", g.op("MatMul", g.input("x", 4, 8), g.weight("w", 8, 4)), g.op("Neg", g.input("r", 3, 4, 4)))


def read_elsewhere(g: GraphBuilder) -> list[onnx_ir.Value]:
    product = g.op("MatMul", g.input("x", 4, 8), g.weight("w", 8, 4))
    return [g.op("Add", product, g.weight("b", 4)), g.op("Neg", product)]


def scaled_bias(g: GraphBuilder) -> onnx_ir.Value:
    return g.op("Gemm", g.input("x", 4, 8), g.weight("w", 8, 4), g.weight("b", 4), beta=0.5)


def no_single_stride(g: GraphBuilder) -> onnx_ir.Value:
    return g.op("MatMul", g.input("x", 2, 1, 4, 8), g.input("z", 1, 3, 8, 5))


def integers(g: GraphBuilder) -> onnx_ir.Value:
    return g.op("MatMul", g.input("x", 4, 8, dtype=INT32), g.constant("w", np.ones((8, 4), np.int32)))


def quantised(g: GraphBuilder) -> onnx_ir.Value:
    x = g.input("x", 4, 8, dtype=onnx_ir.DataType.UINT8)
    return g.op("MatMulInteger", x, g.constant("w", np.ones((8, 4), np.uint8)))


def doubles(g: GraphBuilder) -> onnx_ir.Value:
    return g.op("MatMul", g.input("x", 4, 8, dtype=DOUBLE), g.constant("w", np.ones((8, 4))))


def factor_of_nothing(g: GraphBuilder) -> onnx_ir.Value:
    product = g.op("MatMul", g.input("x", 4, 8), g.weight("w", 8, 4))
    return g.op("Mul", product, g.constant("f", np.float32(0)))


def quotient_by_nothing(g: GraphBuilder) -> onnx_ir.Value:
    product = g.op("MatMul", g.input("x", 4, 8), g.weight("w", 8, 4))
    return g.op("Div", product, g.constant("f", np.float32(0)))


def reciprocal_below_float32(g: GraphBuilder) -> onnx_ir.Value:
    product = g.op("MatMul", g.input("x", 4, 8), g.weight("w", 8, 4))
    return g.op("Div", product, g.constant("f", np.float32(2.0**127)))


def added_to_itself(g: GraphBuilder) -> onnx_ir.Value:
    product = g.op("MatMul", g.input("x", 4, 4), g.weight("w", 4, 4))
    return g.op("Add", product, product)


def bias_of_other_columns(g: GraphBuilder) -> onnx_ir.Value:
    product = g.op("MatMul", g.input("x", 4, 6), g.weight("w", 6, 6))
    return g.op("Add", g.op("Reshape", product, g.ints(8, 3)), g.weight("b", 3))


def residual_repeated_across_rows(g: GraphBuilder) -> onnx_ir.Value:
    product = g.op("MatMul", g.input("x", 4, 6), g.weight("w", 6, 6))
    return g.op("Add", g.op("Reshape", product, g.ints(8, 3)), g.op("Neg", g.input("r", 8, 1)))


def nothing(g: GraphBuilder) -> onnx_ir.Value:
    return g.op("MatMul", g.input("x", 4, 0), g.input("z", 0, 4))


@pytest.mark.parametrize(
    ("build", "node", "reason"),
    [
        (gelu_by_erf, "gelu_0", "its GELU is the tanh form"),
        (gelu_by_erf_written_out, "mul_1", "its GELU is the tanh form"),
        (after_activation, "add_0", "comes after the activation; cuBLASLt adds before it"),
        (bias_along_rows, "add_0", "the bias is not one number for each of the 4 columns"),
        (bias_that_is_a_scalar, "add_0", "the bias is not one number for each of the 4 columns"),
        (residual_in_rows, "add_0", "is repeated along the rows or columns"),
        (larger_sum, "add_0", "what is added to [4, 4] makes it [3, 4, 4]"),
        (read_elsewhere, "add_0", "matmul_0, add_0 are read outside, and a call writes one result"),
        (scaled_bias, "gemm_0", "beta is 0.5; a bias has no factor"),
        (no_single_stride, "matmul_0", "its batch axes of 2 and 3 are broadcast"),
        (integers, "matmul_0", "it is about INT32; one of FLOAT, FLOAT16, BFLOAT16"),
        (quantised, "matmulinteger_0", "integers: of integer products cuBLASLt has only some"),
        (doubles, "matmul_0", "it is about DOUBLE"),
        (nothing, "matmul_0", "has no elements"),
        (factor_of_nothing, "mul_0", "its factors come to 0, which is 0 or not a number float32 can say"),
        (quotient_by_nothing, "div_0", "its factors come to inf"),
        (reciprocal_below_float32, "div_0", "its factors come to 5.87747e-39"),
        (added_to_itself, "add_0", "matmul_0, which is inside, is added to itself"),
        (bias_of_other_columns, "add_0", "the bias is repeated along [8, 3], a view of the product"),
        (residual_repeated_across_rows, "add_0", "the residual is repeated along [8, 3], a view of the product"),
    ],
)
def test_what_is_refused_is_refused_with_its_reason(
    build: Callable[[GraphBuilder], onnx_ir.Value | list[onnx_ir.Value]], node: str, reason: str
) -> None:
    g = GraphBuilder()
    outputs = build(g)
    found = proposals(g.model(*([outputs] if isinstance(outputs, onnx_ir.Value) else outputs)))

    assert reason in found.refusals[found.graph.names.index(node)]


def test_tf32_is_for_float32_only() -> None:
    g = GraphBuilder()
    half = g.model(g.op("MatMul", g.input("x", 4, 8, dtype=FLOAT16), g.input("z", 8, 4, dtype=FLOAT16)))

    assert "precision=tf32 is a way to multiply float32" in proposals(half, TF32).refusals[0]
    assert len(proposals(dense(), TF32).candidates) == len(proposals(dense()).candidates)


def test_a_transpose_that_others_read_too_stays_outside() -> None:
    g = GraphBuilder()
    turned = g.op("Transpose", g.input("x", 8, 4), perm=[1, 0])
    found = proposals(g.model(g.op("MatMul", turned, g.weight("w", 8, 4)), g.op("Neg", turned)))

    assert [each.sub_graph.names for each in found.candidates] == [("matmul_0",)]


def test_a_factor_after_the_bias_is_no_factor_of_the_product() -> None:
    g = GraphBuilder()
    product = g.op("Gemm", g.input("x", 4, 8), g.weight("w", 8, 4), g.weight("b", 4))
    found = proposals(g.model(g.op("Mul", product, g.constant("f", np.float32(0.5)))))

    assert [each.sub_graph.label for each in found.candidates] == ["cublas.matmul_bias"]


def test_a_factor_whose_result_others_read_too_stays_outside() -> None:
    g = GraphBuilder()
    x = g.op("Mul", g.input("x", 4, 8), g.constant("f", np.float32(0.5)))
    found = proposals(g.model(g.op("MatMul", x, g.weight("w", 8, 4)), g.op("Neg", x)))

    assert [each.sub_graph.names for each in found.candidates] == [("matmul_0",)]


def test_a_view_that_is_read_elsewhere_too_has_the_product_written_alone() -> None:
    g = GraphBuilder()
    seen = g.op("Reshape", g.op("MatMul", g.input("x", 4, 8), g.weight("w", 8, 4)), g.ints(2, 2, 4))
    found = proposals(g.model(g.op("Relu", seen), g.op("Neg", seen)))

    assert [each.sub_graph.label for each in found.candidates] == ["cublas.matmul"]
    assert "are read outside, and a call writes one result" in found.refusals[found.graph.names.index("relu_0")]


def test_a_factor_of_more_axes_than_the_operand_stays_outside() -> None:
    g = GraphBuilder()
    x = g.op("Mul", g.input("x", 4, 8), g.constant("f", np.full((1, 1, 1), 2, np.float32)))
    found = proposals(g.model(g.op("MatMul", x, g.weight("w", 8, 4))))

    assert [each.sub_graph.names for each in found.candidates] == [("matmul_0",)]
