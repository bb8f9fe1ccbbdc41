"""How many convolutions and attention blocks of real models are taken, and with what behind them.

What there is is counted from the models' papers and configurations, or by following readers through the graph; not by
patterns.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping
from typing import Any

import onnx_ir
import pytest

from benchmarks.models import MODELS
from collage.prepare.steps import prepare
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits
from collage_core.patterns import Mismatch, PatternTable
from collage_cudnn.patterns import register
from tests.exports.blocks import blocks
from tests.exports.reading import read
from tests.halved import halved
from tests.resnext import DEPTHS, resnext

from .machine import TARGET, proposals

RESNET_BLOCKS = sum(DEPTHS)


def suite(name: str) -> onnx_ir.Model:
    return prepare(onnx_ir.from_proto(MODELS[name].skeleton()))


RESNET_CHAINS = {
    # the stem; two in each block; what each block adds
    "cudnn.conv_relu": 1 + 2 * RESNET_BLOCKS + RESNET_BLOCKS,
    # each alone, four of them projections, and what each block adds before it is activated
    "cudnn.conv": 1 + 3 * RESNET_BLOCKS + len(DEPTHS) + RESNET_BLOCKS,
}
CHAINS: dict[str, tuple[Any, Mapping[str, int]]] = {
    "resnet50": (lambda: suite("resnet50"), RESNET_CHAINS),
    "resnext50": (resnext, RESNET_CHAINS),
}


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("resnet50", "float32"),
        pytest.param("resnet50", "float16", marks=pytest.mark.slow),
        pytest.param("resnext50", "float32", marks=pytest.mark.slow),
        ("resnext50", "float16"),
    ],
)
def test_every_convolution_of_a_resnet_is_taken_with_its_chain(name: str, dtype: str) -> None:
    make, wanted = CHAINS[name]
    model = make() if dtype == "float32" else halved(make())

    found = proposals(model)

    labels = collections.Counter(each.sub_graph.label for each in found.candidates)
    assert {label: labels[label] for label in wanted} == dict(wanted)
    assert {len(each.sub_graph.names) for each in found.candidates if each.sub_graph.label == "cudnn.conv_relu"} == {
        2,
        3,
    }


@pytest.mark.parametrize(
    "name",
    [
        "squeezenet",
        "super_resolution",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("shufflenet", "inception_v1", "mobilenet_v2")),
    ],
)
def test_every_convolution_of_the_suite_is_taken_with_the_relu_that_follows_it(name: str) -> None:
    graph = DataflowGraph(given(name))
    found = proposals(graph)

    chains = {each.sub_graph.nodes for each in found.candidates}
    convolutions = [index for index, node in enumerate(graph.nodes) if node.op_type in ("Conv", "ConvTranspose")]
    assert convolutions
    for index in convolutions:
        assert 1 << index in chains or index in found.refusals
        [output] = graph.nodes[index].outputs
        readers = list(iterate_bits(graph.users(output)))
        if len(readers) == 1 and graph.nodes[readers[0]].op_type == "Relu":
            assert 1 << index | 1 << readers[0] in chains


def given(name: str) -> onnx_ir.Model:
    entry = MODELS[name]
    shapes = {each: tuple(array.shape) for each, array in entry.make_inputs().items()}
    return prepare(onnx_ir.from_proto(entry.skeleton()), input_shapes=shapes)


def attention_answers(model: onnx_ir.Model) -> list[str]:
    """What the table says of each block: of the product that reads, through casts and guards, what a Softmax gives."""
    graph = DataflowGraph(model)
    table = PatternTable()
    register(table, TARGET)
    [entry] = [each for each in table.patterns if each.name == "cudnn.attention"]
    assert entry.check is not None
    answers = []
    for node in graph.nodes:
        if node.op_type not in ("Softmax", "Attention"):
            continue
        index = graph.producer(node.outputs[0])
        assert index is not None
        while graph.nodes[index].op_type not in ("MatMul", "Attention"):
            [*_, index] = iterate_bits(graph.users(graph.nodes[index].outputs[0]))
        match = entry.match(graph, index)
        if isinstance(match, Mismatch):
            answers.append(f"no match: {match.reason}")
        else:
            answers.append(getattr(entry.check(match), "reason", "taken"))
    return answers


@pytest.mark.parametrize("form", ["torchscript", "dynamo"])
@pytest.mark.parametrize("name", ["bert", "vit", "gpt2"])
def test_every_attention_block_is_taken_in_float16_and_refused_with_a_reason_in_float32(name: str, form: str) -> None:
    model = prepare(read(name, form))
    single = attention_answers(model)
    assert len(single) == blocks(name).attention
    assert set(single) == {"it is about float32; cuDNN's attention takes float16 and bfloat16"}

    half = attention_answers(halved(model))
    assert len(half) == blocks(name).attention
    assert set(half) == {"taken"}
