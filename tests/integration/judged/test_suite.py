"""What two runtimes compute of the suite's models, up to any tensor, the judge accepts."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir
import pytest
from onnx.utils import Extractor

from benchmarks.models import MODELS
from collage.build.verifying.output_check import ValueJudge
from collage.prepare.steps import prepare
from collage.reference import evaluate
from collage_core.ir.graph.dataflow import DataflowGraph
from tests.integration.judged.runtimes import LIMIT, RUNTIMES

pytestmark = [pytest.mark.plugins, pytest.mark.slow]

TENSORS = 14
"""About how many tensors of each model are looked at."""


def verdicts(name: str) -> Iterator[tuple[str, str]]:
    """Yield tensors of a model as each runtime computes them from its inputs, and what is wrong with them."""
    entry = MODELS[name]
    feeds = entry.make_inputs()
    shapes = {value: array.shape for value, array in feeds.items()}
    graph = DataflowGraph(prepare(ir.serde.deserialize_model(entry.build()), input_shapes=shapes))
    run = evaluate(graph.model, feeds, conditioned=True)
    judge = ValueJudge(graph, run, correct=True, relative=LIMIT, mismatched=LIMIT)
    tensors = [
        str(value.name) for node in graph.model.graph for value in node.outputs if value.name in run.conditioning
    ]
    model = ir.serde.serialize_model(graph.model)
    for tensor in {*tensors[:: -(-len(tensors) // TENSORS)], *tensors[-2:]}:
        part = Extractor(model).extract_model([value.name for value in model.graph.input], [tensor])
        read = {value for node in part.graph.node for value in node.input}
        for value in [value for value in part.graph.input if value.name not in read]:
            part.graph.input.remove(value)
        given = {value.name: feeds[value.name] for value in part.graph.input}
        for runtime, compute in RUNTIMES.items():
            try:
                (found,) = compute(part.SerializeToString(), given)
            except RuntimeError:  # OpenVINO refuses some operators
                continue
            yield f"{tensor}, {runtime}", judge.verdict(tensor, found, as_output=False).problem


@pytest.mark.guards(
    "what ONNX Runtime and OpenVINO compute of each suite model, up to any tensor", "accepted", area="toolchains"
)
@pytest.mark.parametrize("name", MODELS)
def test_the_judge_refuses_nothing_of_the_suite(name: str) -> None:
    found = dict(verdicts(name))

    assert {where: problem for where, problem in found.items() if problem} == {}
    assert len(found) >= TENSORS
