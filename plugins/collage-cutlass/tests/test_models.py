"""How many convolutions of real models are taken, with what behind them, and why others are not.

What there is is counted from the models' papers, and by following readers through the graph; not by patterns.
"""

from __future__ import annotations

import collections
from collections.abc import Callable

import onnx_ir
import pytest

from benchmarks.models import MODELS
from collage.prepare.steps import prepare
from collage_core.candidates.proposals import Proposals
from collage_core.ir.graph.dataflow import DataflowGraph
from tests.exports.blocks import blocks
from tests.exports.reading import read
from tests.halved import halved
from tests.resnext import DEPTHS, resnext

from .machine import FP16, TARGET, TF32, proposals

BLOCKS = sum(DEPTHS)
STEM = "c=3 is not a multiple of {}"
GROUPED = "groups; the fused kernels have one"

CONVOLUTIONS = 1 + 3 * BLOCKS + len(DEPTHS)
"""Of a ResNet-50 and a ResNeXt-50: the stem, three in each block, a projection for each stage."""


def resnet() -> onnx_ir.Model:
    return prepare(onnx_ir.from_proto(MODELS["resnet50"].skeleton()))


def in_half(make: Callable[[], onnx_ir.Model]) -> Callable[[], onnx_ir.Model]:
    return lambda: halved(make())


# the model, the target, at once how many channels are read, and whether the second of each block is grouped
CASES = {
    "resnet50, float32": (resnet, TARGET, 1, False),
    "resnet50, tf32": (resnet, TF32, 4, False),
    "resnet50, float16": (in_half(resnet), TARGET, 8, False),
    "resnext50, float32": (resnext, TARGET, 1, True),
    "resnext50, rounded to float16": (resnext, FP16, 8, True),
    "resnext50, float16": (in_half(resnext), TARGET, 8, True),
}
QUICK = ("resnet50, float32", "resnext50, float16")


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in CASES])
def test_every_convolution_is_taken_with_its_chain_or_refused_with_its_reason(name: str) -> None:
    make, target, at_once, grouped = CASES[name]
    graph = DataflowGraph(make())

    found = proposals(graph, target)

    stems, middle = (1 if at_once == 1 else 0), (0 if grouped else BLOCKS)
    labels = collections.Counter(each.sub_graph.label for each in found.candidates)
    # the stem; the first and the second of each block; what each block adds
    assert labels["cutlass.conv_relu"] == stems + BLOCKS + middle + BLOCKS
    # each alone, and what each block adds before it is activated
    assert labels["cutlass.conv"] == stems + BLOCKS + middle + BLOCKS + len(DEPTHS) + BLOCKS
    reasons = refused(graph, found, "Conv")
    assert sum(node.op_type == "Conv" for node in graph.nodes) == CONVOLUTIONS
    assert sum(STEM.format(at_once) in each for each in reasons) == 1 - stems
    assert sum(GROUPED in each for each in reasons) == BLOCKS - middle
    assert len(reasons) == 1 - stems + BLOCKS - middle


def refused(graph: DataflowGraph, found: Proposals, *operators: str) -> list[str]:
    """Why nodes of some operators are in no candidate, of each that is in none."""
    nodes = [index for index, node in enumerate(graph.nodes) if node.op_type in operators]
    return [found.refusals[index] for index in nodes if not found.covered >> index & 1]


@pytest.mark.parametrize("form", ["torchscript", pytest.param("dynamo", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["bert", "vit", "gpt2"])
def test_of_attention_both_products_are_taken_and_the_block_is_refused_with_its_reason(name: str, form: str) -> None:
    graph = DataflowGraph(prepare(read(name, form)))

    found = proposals(graph)

    assert refused(graph, found, "MatMul", "Gemm") == []
    reasons = refused(graph, found, "Softmax")
    assert len(reasons) == blocks(name).attention > 0
    assert all("nothing here compiles attention as one kernel" in each for each in reasons)
