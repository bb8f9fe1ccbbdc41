"""What is refused, and with which reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir
import pytest

from collage_cudnn.activations import ACTIVATIONS
from collage_cudnn.patterns import FORMS, NEVER
from collage_testing import GraphBuilder
from collage_testing.kit.gpu_plugins import activated
from collage_testing.kit.gpu_plugins import scaled_weight as weight

from .cases import FLOAT, FLOAT16, attention, batch_norm, convolution, layer_norm, product
from .machine import TARGET, TF32, proposals

DOUBLE, INT8 = onnx_ir.DataType.DOUBLE, onnx_ir.DataType.UINT8


def added_after_activation() -> onnx_ir.Model:
    g = GraphBuilder()
    value = g.op("Relu", g.op("Conv", g.input("x", 1, 4, 5, 5), g.weight("w", 4, 4, 1, 1)))
    return g.model(g.op("Add", value, g.op("Neg", g.input("r", 1, 4, 5, 5))))


def read_elsewhere() -> onnx_ir.Model:
    g = GraphBuilder()
    value = g.op("Conv", g.input("x", 1, 4, 5, 5), g.weight("w", 4, 4, 1, 1))
    return g.model(g.op("Relu", value), g.op("Neg", value))


def added_along_rows() -> onnx_ir.Model:
    g = GraphBuilder()
    value = g.op("Conv", g.input("x", 1, 4, 5, 5), g.weight("w", 4, 4, 1, 1))
    return g.model(g.op("Relu", g.op("Add", value, g.weight("b", 1, 1, 5, 1))))


def clipped_elsewhere() -> onnx_ir.Model:
    g = GraphBuilder()
    value = g.op("Conv", g.input("x", 1, 4, 5, 5), g.weight("w", 4, 4, 1, 1))
    bounds = [g.constant(name, np.float32(number)) for name, number in (("least", -1), ("most", 1))]
    return g.model(g.op("Clip", value, *bounds))


def steeper_elu() -> onnx_ir.Model:
    g = GraphBuilder()
    value = g.op("Conv", g.input("x", 1, 4, 5, 5), g.weight("w", 4, 4, 1, 1))
    return g.model(g.op("Elu", value, alpha=2.0))


def integers() -> onnx_ir.Model:
    g = GraphBuilder()
    x = g.input("x", 1, 4, 5, 5, dtype=INT8)
    return g.model(g.op("ConvInteger", x, g.constant("w", np.ones((4, 4, 1, 1), np.uint8))))


def pooling() -> onnx_ir.Model:
    g = GraphBuilder()
    return g.model(g.op("MaxPool", g.input("x", 1, 4, 5, 5), kernel_shape=[2, 2]))


def softmax() -> onnx_ir.Model:
    g = GraphBuilder()
    return g.model(g.op("Softmax", g.input("x", 1, 4)))


def vector() -> onnx_ir.Model:
    g = GraphBuilder()
    return g.model(g.op("MatMul", g.input("x", 8, dtype=FLOAT16), g.input("z", 8, 4, dtype=FLOAT16)))


def computed_variance() -> onnx_ir.Model:
    g = GraphBuilder()
    vectors = [g.weight(name, 4) for name in ("scale", "bias", "mean")]
    x = g.input("x", 1, 4, 5, 5)
    return g.model(g.op("BatchNormalization", x, *vectors, g.op("Abs", g.input("v", 4))))


CASES: list[tuple[Callable[[], onnx_ir.Model], str, str]] = [
    (added_after_activation, "add_0", "comes after the activation; the compiled kernels add before it"),
    (read_elsewhere, "relu_0", "conv_0, relu_0 are read outside, and a graph here writes one result"),
    (added_along_rows, "add_0", "not one number for each of the 4 channels"),
    (clipped_elsewhere, "clip_0", "it clips to [-1, 1]; a ReLU's lower bound is 0"),
    (steeper_elu, "elu_0", "its Elu has alpha 2; the frontend's has 1"),
    (integers, "convinteger_0", "integers: cuDNN's kernels for them take channels in blocks"),
    (pooling, "maxpool_0", "no node for pooling"),
    (softmax, "softmax_0", "no node for softmax alone"),
    (vector, "matmul_0", "it multiplies a vector"),
    (computed_variance, "batchnormalization_0", "are not all constants"),
    (lambda: convolution(dtype=DOUBLE), "conv_0", "it is about DOUBLE; one of BFLOAT16, FLOAT, FLOAT16"),
    (lambda: convolution(x=(1, 8, 2, 2, 2, 2), kernel=(4, 8, 1, 1, 1, 1)), "conv_0", "a convolution over 4 axes"),
    (lambda: convolution("Silu"), "mul_0", "a float32 convolution followed by silu is computed with tensor cores only"),
    (
        lambda: convolution(operator="ConvTranspose", kernel=(8, 6, 3, 3)),
        "convtranspose_0",
        "what follows a transposed convolution of float32 is computed with tensor cores only",
    ),
    (lambda: product(dtype=FLOAT), "matmul_0", "multiplies float32 matrices by tensor cores"),
    (lambda: product(a=(2, 1, 3, 8), b=(1, 2, 8, 4)), "matmul_0", "are broadcast against each other"),
    (lambda: attention(dtype=FLOAT), "matmul_1", "cuDNN's attention takes float16 and bfloat16"),
    (lambda: attention("chosen"), "matmul_1", "its mask chooses by truth values"),
    (lambda: attention(size=12), "matmul_1", "its heads have 12 and 12 elements; multiples of 8"),
    (lambda: layer_norm(dtype=DOUBLE), "layernormalization_0", "it is about DOUBLE"),
]


@pytest.mark.parametrize(("build", "node", "reason"), CASES)
def test_what_is_refused_is_refused_with_its_reason(build: Callable[[], onnx_ir.Model], node: str, reason: str) -> None:
    model = build()
    found = refusals(model, node)

    assert any(reason in each for each in found), found


def refusals(model: onnx_ir.Model, node: str, target: Any = TARGET) -> list[str]:
    """What the table's entries say at a node; a smaller group there may be taken."""
    found = proposals(model, target)
    index = found.graph.names.index(node)
    said = [found.refusals[index]] if index in found.refusals else []
    for name in (*FORMS, *NEVER):
        entry = next(each for each in TABLES[target is TF32] if each.name == name)
        match = entry.match(found.graph, index)
        if match and entry.check is not None:
            said.append(getattr(entry.check(match), "reason", ""))
    return said


def tables() -> tuple[Any, Any]:
    from collage_core.patterns import PatternTable
    from collage_cudnn.patterns import register

    made = []
    for target in (TARGET, TF32):
        table = PatternTable()
        register(table, target)
        made.append(table.patterns)
    return made[0], made[1]


TABLES = tables()


def test_what_float32_needs_tensor_cores_for_is_taken_where_they_may_round() -> None:
    for model in (convolution("Silu"), convolution(operator="ConvTranspose", kernel=(8, 6, 3, 3))):
        assert len(proposals(model, TF32).candidates) > len(proposals(model).candidates)
    assert any("precision=tf32 is a way to multiply float32" in each for each in refusals(product(), "matmul_0", TF32))


def test_a_depthwise_convolution_needs_no_tensor_cores_for_any_activation() -> None:
    labels = [each.sub_graph.label for each in proposals(convolution("Silu", kernel=(8, 1, 3, 3), group=8)).candidates]

    assert "cudnn.conv_silu" in labels


@pytest.mark.parametrize("activation", ["", "relu"])
def test_the_label_says_what_is_computed_and_the_attributes_name_the_nodes(activation: str) -> None:
    found = proposals(batch_norm(1, 4, 3, 3, activation=activation.capitalize()))
    largest = max(found.candidates, key=lambda each: len(each.sub_graph.names))

    assert largest.sub_graph.label == ("cudnn.batch_norm_relu" if activation else "cudnn.batch_norm")
    assert dict(largest.sub_graph.attributes) == {"graph": " ".join(["mul", "add", *filter(None, [activation])])}


def test_each_activation_has_a_form_after_convolutions_and_products() -> None:
    for stem in ("conv", "conv_transpose", "matmul"):
        assert {f"cudnn.{stem}", *(f"cudnn.{stem}_{name}" for name in ACTIVATIONS)} <= set(FORMS)


def test_an_activation_that_is_none_of_them_stays_outside() -> None:
    g = GraphBuilder()
    value = g.op("Conv", g.input("x", 1, 4, 5, 5), weight(g, "w", 4, 4, 1, 1))
    found = proposals(g.model(activated(g, "HardSigmoid", value)))

    assert [each.sub_graph.names for each in found.candidates] == [("conv_0",)]
