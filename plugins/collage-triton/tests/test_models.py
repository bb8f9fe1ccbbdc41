"""What is taken of real models: counted from their files by the names of operators, and from their configurations."""

from __future__ import annotations

import collections

import onnx_ir
import pytest

from benchmarks.triton_claims import EXPORTS, NAMES, README, Claims, claims_of, model_of, table, written
from collage_core.ir.graph.dataflow import DataflowGraph
from tests.exports.blocks import blocks

LEFT_TO_OTHERS = {
    "GRU",
    "GatherND",
    "LRN",
    "NonMaxSuppression",
    "Resize",
    "ScatterND",
    "TopK",
}
"""Operators that the plugin's README says it does not take, of those in these models."""

QUICK = ("mnist", "squeezenet", "vgg19", "zfnet512", "bert", "llama")


def sorted_by_cost(names: tuple[str, ...]) -> list[object]:
    return [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in names]


def counted(model: onnx_ir.Model, graph: DataflowGraph) -> tuple[int, dict[str, int]]:
    """Nodes that need a kernel, and those left to others: from the file, by name and by the shapes it declares."""
    views = {graph.names[index] for index in range(len(graph)) if graph.is_host(index)}
    file = onnx_ir.to_proto(model).graph
    kernels = [node for node in file.node if node.name not in views]
    unknown = {
        value.name
        for value in (*file.value_info, *file.output)
        if not all(each.HasField("dim_value") for each in value.type.tensor_type.shape.dim)
    }
    left = [node for node in kernels if node.op_type in LEFT_TO_OTHERS or unknown & {*node.input, *node.output}]
    return len(kernels), dict(collections.Counter(node.op_type for node in left))


@pytest.mark.parametrize("name", sorted_by_cost(NAMES))
def test_every_node_is_taken_but_those_of_a_few_operators(name: str) -> None:
    model = model_of(name)
    graph = DataflowGraph(model)
    nodes, left = counted(model, graph)

    found = claims_of(name, graph)

    assert (found.nodes, dict(found.refused)) == (nodes, left)
    assert found.taken == nodes - sum(left.values())
    assert row_of(found) in written(README.read_text(encoding="utf-8"))  # the table is not older than the code


def row_of(found: Claims) -> str:
    return f"| {' | '.join(found.row())} |"


@pytest.mark.parametrize("name", sorted_by_cost(EXPORTS))
def test_each_norm_and_activation_of_an_export_is_one_candidate(name: str) -> None:
    of = blocks(name)
    norms = of.layer_norm + of.rms_norm
    # GELUs after Whisper's convolutions are calls of a function, so their nodes have no module's name
    activations = of.gelu + of.gelu_tanh + of.quick_gelu + of.silu - (2 if name == "whisper_encoder" else 0)

    found = claims_of(name, DataflowGraph(model_of(name)))

    assert found.whole == found.modules == norms + activations


def test_the_table_names_every_model() -> None:
    rows = written(README.read_text(encoding="utf-8"))

    assert rows[:2] == table([])
    assert [row.split(" ")[1] for row in rows[2:]] == list(NAMES)
