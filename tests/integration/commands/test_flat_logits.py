"""A segmenter whose logits tie within rounding: its runtimes choose other classes, and both are right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx_ir as ir
import onnxruntime
import openvino
import pytest
from click.testing import CliRunner

from collage.build.verifying.output_check import ValueJudge, needed
from collage.cli import main
from collage.prepare.steps import prepare
from collage.reference import evaluate
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.io.model_io import save_model
from collage_testing import GraphBuilder

CLASSES: Final = 150
SIZE: Final = 24
LIMIT: Final = 1e-3


def segmenter() -> ir.Model:
    """Return a model of random weights: features, 150 logits that differ by some 1e-5, upsampling and ArgMax."""
    random = np.random.default_rng(5)
    g = GraphBuilder("flat")
    features = g.op("Relu", g.op("Conv", g.input("image", 1, 3, SIZE, SIZE), g.weight("first", 16, 3, 3, 3)))
    weight = g.constant("last", (random.standard_normal((CLASSES, 16, 1, 1)) * 5e-6).astype(np.float32))
    logits = g.op("Conv", features, weight, g.constant("bias", np.ones(CLASSES, np.float32)))
    large = g.op("Resize", logits, None, None, g.ints(1, CLASSES, 2 * SIZE, 2 * SIZE), mode="linear")
    return g.model(g.op("ArgMax", large, axis=1, keepdims=0))


def by_runtimes(model: Path, image: Any) -> dict[str, Any]:
    """Return the classes by runtime."""
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(model), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return {
        "onnxruntime": session.run(None, {"image": image})[0],
        "openvino": np.asarray(compiled({"image": image})[compiled.outputs[0]]),
    }


pytestmark = pytest.mark.plugins


@pytest.mark.guards("right toolchains choose otherwise where scores tie")
def test_either_choice_is_right_and_the_second_best_by_a_clear_margin_is_not(tmp_path: Path) -> None:
    save_model(segmenter(), tmp_path / "flat.onnx")
    graph = DataflowGraph(prepare(segmenter()))
    image = np.random.default_rng(6).standard_normal((1, 3, SIZE, SIZE)).astype(np.float32)
    [output] = [str(value.name) for value in graph.model.graph.outputs]
    wanted = needed(graph, [output])
    run = evaluate(graph.model, {"image": image}, keep=wanted.__contains__, conditioned=True)
    right = run.values[output]
    judge = ValueJudge(graph, run, correct=True, relative=LIMIT, mismatched=LIMIT)
    found = by_runtimes(tmp_path / "flat.onnx", image)

    differing = {name: float(np.mean(classes != right)) for name, classes in found.items()}
    assert max(differing.values()) > LIMIT  # else there is nothing to see here
    for classes in found.values():
        assert judge.verdict(output, classes, as_output=True).problem == ""

    [logits] = [run.values[name] for name in wanted if np.ndim(run.values[name]) == 4 and name != "image"]
    ordered = np.sort(logits, axis=1)
    clear = ordered[:, -1] - ordered[:, -2] > 1e-5
    second = np.where(clear, np.argsort(logits, axis=1)[:, -2], right)
    assert 0 < np.count_nonzero(second != right) < right.size
    assert "more than rounding explains" in judge.verdict(output, second, as_output=True).problem


@pytest.mark.slow
def test_a_search_refuses_neither_runtime(tmp_path: Path) -> None:
    save_model(segmenter(), tmp_path / "flat.onnx")
    report = tmp_path / "report.json"

    result = CliRunner().invoke(
        main,
        [
            *("optimize", str(tmp_path / "flat.onnx"), "-o", str(tmp_path / "flat.collage"), "--json", str(report)),
            *("--toolchains", "onnxruntime,openvino", "--tuning-db", str(tmp_path / "tuning.sqlite")),
            *("--preset", "quick", "--threads", "1", "--iterations", "3", "--duration", "0.01"),
        ],
    )

    assert result.exit_code == 0, result.stderr
    facts = json.loads(report.read_text(encoding="utf-8"))
    assert [fact for fact in facts["refusals"] if "wrong numbers" in fact["reason"]] == []
    assert {each["name"] for each in facts["comparison"]["contenders"]} >= {"onnxruntime", "openvino"}
