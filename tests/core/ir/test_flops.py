"""Operations of nodes, against ONNX's own reference computing with numbers that count, and against published counts."""

from __future__ import annotations

import dataclasses
import importlib.resources
import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir
import pytest
from onnx.reference.ops import op_conv, op_gru, op_lstm

from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.flops import node_flops
from collage_core.ir.io.inference import infer_model
from collage_core.ir.io.model_io import load_model
from collage_testing import GraphBuilder


@dataclasses.dataclass
class Tally:
    """Products so far in which exactly one factor is a weight, or both factors are plain."""

    of_weights: int = 0
    of_data: int = 0


class Counting:
    """A number that tells its tally of every product with another such number, and not with zeros of padding."""

    def __init__(self, tally: Tally, weight: bool = False) -> None:
        self.tally, self.weight = tally, weight

    def __mul__(self, other: object) -> Any:
        if not isinstance(other, Counting):
            return self
        if self.weight != other.weight:
            self.tally.of_weights += 1
        else:
            self.tally.of_data += 1
        return Counting(self.tally)

    __rmul__ = __mul__

    def _plain(self, *_: object) -> Counting:
        return Counting(self.tally)

    __add__ = __radd__ = __sub__ = __rsub__ = __truediv__ = __rtruediv__ = __neg__ = _plain
    exp = tanh = _plain


def numbers(tally: Tally, *shape: int, weight: bool = False) -> np.ndarray[Any, Any]:
    array = np.empty(shape, dtype=object)
    for at in np.ndindex(*shape):
        array[at] = Counting(tally, weight)
    return array


def flops_of(graph: GraphBuilder, *outputs: onnx_ir.Value, shape: tuple[int, ...] | None = None) -> float:
    """Operations of the one node of a model, whose output has a shape that inference does not find, if one is given."""
    model = graph.model(*outputs)
    if shape is not None:
        model.graph.outputs[0].shape = onnx_ir.Shape(shape)
        model.graph.outputs[0].dtype = onnx_ir.DataType.FLOAT
    return only(DataflowGraph(model))


def only(graph: DataflowGraph) -> float:
    [found] = [node_flops(graph, at) for at in range(len(graph))]
    assert found is not None
    return found


def convolutions() -> Iterator[dict[str, Any]]:
    for pads, strides, dilations, group in itertools.product(
        ([0, 0, 0, 0], [1, 2, 0, 3]), ([1, 1], [2, 3]), ([1, 1], [2, 1]), (1, 2, 4)
    ):
        yield {"pads": pads, "strides": strides, "dilations": dilations, "group": group}
    yield from ({"auto_pad": how, "strides": [2, 2]} for how in ("SAME_UPPER", "SAME_LOWER", "VALID"))


@pytest.mark.parametrize("attributes", [*convolutions()], ids=str)
def test_a_convolution_counts_the_products_that_onnx_s_reference_computes(attributes: dict[str, Any]) -> None:
    group = attributes.get("group", 1)
    tally = Tally()
    op_conv._conv_implementation(
        numbers(tally, 2, 4, 6, 7),
        numbers(tally, 8, 4 // group, 3, 2, weight=True),
        None,
        attributes.get("auto_pad", "NOTSET"),
        attributes.get("dilations"),
        group,
        [3, 2],
        attributes.get("pads"),
        attributes.get("strides"),
    )
    g = GraphBuilder()

    found = flops_of(g, g.op("Conv", g.input("x", 2, 4, 6, 7), g.weight("w", 8, 4 // group, 3, 2), **attributes))

    assert found == 2 * tally.of_weights


def test_a_bias_is_one_addition_per_element() -> None:
    g = GraphBuilder()

    found = flops_of(g, g.op("Conv", g.input("x", 1, 2, 3, 3), g.weight("w", 5, 2, 1, 1), g.weight("b", 5)))

    assert found == 2 * 9 * 2 * 5 + 9 * 5


@pytest.mark.parametrize(
    ("shape", "attributes"),
    [
        ((1, 4, 5, 6), {"strides": [2, 2], "pads": [1, 0, 1, 2], "group": 2}),
        ((2, 4, 3, 3), {"dilations": [2, 1], "output_padding": [0, 0]}),
        ((1, 4, 4, 4), {"strides": [3, 2], "auto_pad": "SAME_UPPER"}),
        ((1, 4, 4, 4), {"strides": [3, 2], "output_shape": [11, 9]}),
    ],
    ids=str,
)
def test_a_transposed_convolution_counts_what_lands_inside(shape: tuple[int, ...], attributes: dict[str, Any]) -> None:
    """Against a loop over elements and taps, with the padding that the standard derives."""
    group = attributes.get("group", 1)
    g = GraphBuilder()
    y = g.op("ConvTranspose", g.input("x", *shape), g.weight("w", 4, 6 // group, 3, 3), **attributes)
    model = g.model(y)
    found, extents = only(DataflowGraph(model)), model.graph.outputs[0].shape
    assert extents is not None
    strides, dilations = attributes.get("strides", [1, 1]), attributes.get("dilations", [1, 1])
    inside = []
    for axis, (count, extent) in enumerate(zip(shape[2:], extents.numpy()[2:], strict=True)):
        total = strides[axis] * (count - 1) + 2 * dilations[axis] + 1 - extent
        begin = attributes.get("pads", [0, 0])[axis]
        if "auto_pad" in attributes or "output_shape" in attributes:  # as the standard says for ConvTranspose
            begin = total // 2 if attributes.get("auto_pad") == "SAME_UPPER" else total - total // 2
        places = [at * strides[axis] + tap * dilations[axis] - begin for at in range(count) for tap in range(3)]
        inside.append(sum(1 for place in places if 0 <= place < extent))

    assert found == 2 * shape[0] * 4 * (6 // group) * math.prod(inside)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(3, 4), (4, 5)]),
        ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)]),
        ("...ij,...jk->...ik", [(2, 1, 3, 4), (5, 4, 2)]),
        ("ij,jk", [(3, 4), (4, 5)]),
        ("i,j->ij", [(3,), (4,)]),
    ],
)
def test_an_einsum_of_two_counts_the_products_that_numpy_computes(equation: str, shapes: list[tuple[int, ...]]) -> None:
    tally = Tally()
    left, right = numbers(tally, *shapes[0]), numbers(tally, *shapes[1], weight=True)
    result = np.einsum(equation, left, right)
    g = GraphBuilder()
    operands = [g.input(f"x{position}", *shape) for position, shape in enumerate(shapes)]

    found = flops_of(g, g.op("Einsum", *operands, equation=equation), shape=result.shape)

    assert found == (2 if equation != "i,j->ij" else 1) * tally.of_weights


def test_an_einsum_of_several_counts_its_cheapest_order_as_numpy_finds_it() -> None:
    shapes = {"a": (8, 30), "b": (30, 2), "c": (2, 40), "d": (40, 5)}
    g = GraphBuilder()
    operands = [g.input(name, *shape) for name, shape in shapes.items()]

    found = flops_of(g, g.op("Einsum", *operands, equation="ij,jk,kl,lm->im"))

    _, said = np.einsum_path("ij,jk,kl,lm->im", *map(np.ones, shapes.values()), optimize="optimal")
    [line] = [line for line in said.splitlines() if "Optimized FLOP count" in line]
    assert found == pytest.approx(float(line.split(":")[1]), rel=1e-3)  # NumPy prints four digits


@pytest.mark.parametrize(
    ("equation", "shape", "count"), [("ii->i", (4, 4), 0), ("ij->i", (3, 4), 12), ("ij->ji", (3, 4), 0)]
)
def test_an_einsum_of_one_counts_what_it_adds(equation: str, shape: tuple[int, ...], count: int) -> None:
    g = GraphBuilder()

    assert flops_of(g, g.op("Einsum", g.input("x", *shape), equation=equation)) == count


@pytest.mark.parametrize("shapes", [((4, 3), (3, 5)), ((2, 1, 4, 3), (6, 3, 5)), ((3,), (3, 5)), ((4, 3), (3,))])
def test_a_matrix_product_counts_the_products_that_numpy_computes(
    shapes: tuple[tuple[int, ...], tuple[int, ...]],
) -> None:
    tally = Tally()
    np.matmul(numbers(tally, *shapes[0]), numbers(tally, *shapes[1], weight=True))
    g = GraphBuilder()

    found = flops_of(g, g.op("MatMul", g.input("x", *shapes[0]), g.input("w", *shapes[1])))

    assert found == 2 * tally.of_weights


@pytest.mark.parametrize("transposed", [0, 1])
def test_gemm_counts_its_product_and_what_it_adds(transposed: int) -> None:
    shape = (7, 4) if transposed else (4, 7)
    g = GraphBuilder()

    found = flops_of(g, g.op("Gemm", g.input("x", *shape), g.weight("w", 7, 5), g.weight("c", 5), transA=transposed))

    assert found == 2 * 4 * 5 * 7 + 4 * 5


RECURRENT = {"GRU": (op_gru.GRU, 3), "LSTM": (op_lstm.LSTM, 4)}


@pytest.mark.parametrize("op_type", ["GRU", "LSTM"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_a_recurrent_operator_counts_the_products_with_weights_that_onnx_s_reference_computes(
    op_type: str, direction: str
) -> None:
    steps, batch, features, hidden = 5, 2, 3, 4
    kind, gates = RECURRENT[op_type]
    directions = 2 if direction == "bidirectional" else 1
    tally = Tally()
    reference: Any = kind.__new__(kind)
    reference.__dict__.update(direction=direction, layout=0, linear_before_reset=0, number_of_gates=gates, n_outputs=1)
    shapes = {"W": (directions, gates * hidden, features), "R": (directions, gates * hidden, hidden)}
    weights = {name: numbers(tally, *shape, weight=True) for name, shape in shapes.items()}
    state = {"H_0": numbers(tally, directions, batch, hidden)}
    if op_type == "LSTM":
        state |= {"C_0": state["H_0"], "P": np.zeros((directions, 3 * hidden), object)}
    bias = np.zeros((directions, 2 * gates * hidden), object)
    reference._step(X=numbers(tally, steps, batch, features), B=bias, num_directions=directions, **weights, **state)
    g = GraphBuilder()
    operands = [g.input("x", steps, batch, features), *(g.weight(name, *shape) for name, shape in shapes.items())]
    output = g.op(op_type, *operands, hidden_size=hidden, direction=direction)

    found = flops_of(g, output)

    # the reference computes a GRU's candidate state twice, once for each value of `linear_before_reset`
    again = steps * batch * hidden * (features + hidden) * directions if op_type == "GRU" else 0
    assert found == 2 * (tally.of_weights - again)


@pytest.mark.parametrize("causal", [0, 1])
def test_attention_counts_scores_and_their_weighted_sums(causal: int) -> None:
    g = GraphBuilder(opset=23)
    query, key = g.input("q", 2, 4, 3, 8), g.input("k", 2, 2, 5, 8)
    found = flops_of(g, g.op("Attention", query, key, g.input("v", 2, 2, 5, 6), is_causal=causal))

    pairs = sum(1 for row in range(3) for column in range(5) if not causal or column <= row)
    assert found == 2 * 4 * pairs * (2 * 8 + 2 * 6 + 4)


def test_pooling_counts_taps_that_lie_inside() -> None:
    g = GraphBuilder()
    y = g.op("MaxPool", g.input("x", 1, 2, 5, 5), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])

    inside = sum(1 for at in range(3) for tap in range(3) if 0 <= 2 * at + tap - 1 < 5)

    assert flops_of(g, y) == 2 * inside**2


def test_a_window_larger_than_its_input_counts_the_input() -> None:
    g = GraphBuilder()
    y = g.op("AveragePool", g.input("x", 1, 3, 7, 7), kernel_shape=[1280, 1280], pads=[637, 637, 636, 636])

    assert flops_of(g, y) == 3 * 7 * 7


@pytest.mark.parametrize(
    ("op_type", "count"),
    [("Relu", 12), ("Softmax", 48), ("LayerNormalization", 60), ("Transpose", 0), ("Identity", 0), ("TopK", 12)],
)
def test_the_others_count_elements(op_type: str, count: int) -> None:
    g = GraphBuilder()
    x = g.input("x", 3, 4)
    if op_type == "TopK":
        outputs = list(g.ops(op_type, 2, x, g.ints(2)))
    elif op_type == "LayerNormalization":
        outputs = [g.op(op_type, x, g.weight("scale", 4))]
    else:
        outputs = [g.op(op_type, x)]

    assert flops_of(g, *outputs) == count


def test_what_shapes_do_not_tell_is_not_counted() -> None:
    model = onnx_ir.from_onnx_text("""
        <ir_version: 10, opset_import: ["" : 21, "mine" : 1]>
        g (float[2] x, bool c, float[a] z) => (float[2] p, float[2] q, float[a] r) {
            p = If (c) <then_branch = t () => (float[2] u) { u = Exp(x) },
                        else_branch = e () => (float[2] v) { v = Neg(x) }>
            q = mine.Own(x)
            r = Exp(z)
        }""")
    infer_model(model)
    graph = DataflowGraph(model)

    assert [node_flops(graph, index) for index in range(len(graph))] == [None] * 3


PUBLISHED = {
    "resnet50": (4.1e9, 0.95),
    "vgg19": (19.6e9, 0.95),
    "densenet121": (2.87e9, 0.95),
    "bvlc_alexnet": (0.72e9, 0.83),
}
"""Multiply-adds as published, and the least share of them that is left without those of padding.

torchvision's documentation (ResNet-50 with the stride in its 3x3 convolutions); He et al. 2015 (arXiv 1512.03385, table
1, VGG-19); Huang et al. 2016 (arXiv 1608.06993, DenseNet-121); Krizhevsky et al. 2012 (AlexNet, on images of 227x227;
ONNX's takes 224x224).
"""


@pytest.mark.parametrize("name", PUBLISHED)
def test_networks_count_what_their_authors_published_less_the_padding(name: str) -> None:
    published, least = PUBLISHED[name]
    with importlib.resources.as_file(importlib.resources.files("onnx")) as folder:
        model = load_model(Path(folder, "backend", "test", "data", "light", f"light_{name}.onnx"))
    infer_model(model)
    graph = DataflowGraph(model)

    counted = sum(node_flops(graph, index) or 0.0 for index in range(len(graph)))

    assert least * published <= counted / 2 <= published


MOBILENET_V2 = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
"""Expansion, channels, repetitions and stride of its bottlenecks: Sandler et al. 2018 (arXiv 1801.04381), table 2."""


def test_depthwise_convolutions_count_as_published_for_mobilenet_v2() -> None:
    g = GraphBuilder()
    channels = 3

    def convolution(x: onnx_ir.Value, out: int, kernel: int = 1, stride: int = 1, group: int = 1) -> onnx_ir.Value:
        weight = g.weight(f"w{g.count}", out, channels // group, kernel, kernel)
        return g.op("Conv", x, weight, strides=[stride] * 2, pads=[kernel // 2] * 4, group=group)

    x, channels = convolution(g.input("x", 1, 3, 224, 224), 32, 3, 2), 32
    for expansion, out, times, first in MOBILENET_V2:
        for stride in (first, *(1,) * (times - 1)):
            inside = expansion * channels
            x, channels = (x, inside) if expansion == 1 else (convolution(x, inside), inside)
            x = convolution(x, inside, 3, stride, group=inside)
            x, channels = convolution(x, out), out
    x, channels = convolution(x, 1280), 1280
    x = convolution(g.op("GlobalAveragePool", x), 1000)
    graph = DataflowGraph(g.model(x))

    counted = sum(node_flops(graph, index) or 0.0 for index in range(len(graph)))

    assert counted / 2 == pytest.approx(300e6, rel=0.03)
