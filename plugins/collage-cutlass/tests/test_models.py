"""How many convolutions of real models are taken, and with what behind them.

What there is is counted from the models' papers, and by following readers through the graph; not by patterns.
"""

from __future__ import annotations

import collections

import onnx_ir
import pytest

from benchmarks.models import MODELS
from collage_core.ir.dataflow import DataflowGraph
from collage_core.passes.prepare import prepare

from .machine import TF32, proposals

RESNET_BLOCKS = 3 + 4 + 6 + 3


def suite(name: str) -> onnx_ir.Model:
    return prepare(onnx_ir.from_proto(MODELS[name].skeleton()))


def test_every_convolution_of_a_resnet_is_taken_in_float32_with_its_chain() -> None:
    found = proposals(suite("resnet50"))

    labels = collections.Counter(each.sub_graph.label for each in found.candidates)
    # the stem; two in each block; what each block adds
    assert labels["cutlass.conv_relu"] == 1 + 2 * RESNET_BLOCKS + RESNET_BLOCKS
    # each alone, four of them projections, and what each block adds before it is activated
    assert labels["cutlass.conv"] == 1 + 3 * RESNET_BLOCKS + 4 + RESNET_BLOCKS


@pytest.mark.slow
def test_on_tensor_cores_all_but_the_stem_are_taken_and_the_stem_has_its_reason() -> None:
    graph = DataflowGraph(suite("resnet50"))
    found = proposals(graph, TF32)

    taken = 0
    for each in found.candidates:
        taken |= each.sub_graph.nodes
    convolutions = [index for index, node in enumerate(graph.nodes) if node.op_type == "Conv"]
    [stem] = [index for index in convolutions if not taken >> index & 1]
    assert stem == convolutions[0]
    assert "c=3 is not a multiple of 4" in str(found.refusals[stem])
