"""Generated models are valid, seeded, small enough for an exhaustive search, and cover what is deployed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir
import pytest

from benchmarks.judge.inputs import beside, read
from benchmarks.judge.statistics import disagreement
from benchmarks.models.weights import is_declared
from benchmarks.regret.__main__ import main
from benchmarks.regret.bodies import BODIES
from benchmarks.regret.generator import COUNT, MOST_OPERATORS, TAILS, Grafted, all_grafted, grafted, operators
from benchmarks.regret.heads import HEADS
from benchmarks.regret.searches import EXHAUSTIVE, distinct_candidates
from benchmarks.replay.bench import Bench
from collage.reference.evaluator import evaluate
from collage.report.progress import SilentProgress
from tests.benchmarks.test_models import run_onnxruntime, run_openvino

MODELS = all_grafted()
MOST_CANDIDATES = 150
TOLERANCE = 1e-3  # as of `optimize`: relative to the scale, and the share of indices that differ
BY_DEFAULT = {"r08", "r12", "r17"}


def some(names: set[str]) -> list[Any]:
    """Parameters: all models, those not named marked slow."""
    return [
        pytest.param(model, id=name, marks=[] if name[:3] in names else [pytest.mark.slow])
        for name, model in MODELS.items()
    ]


def test_forty_models_have_each_tail_and_each_head() -> None:
    models = MODELS.values()

    assert len(MODELS) == COUNT == 40
    assert {model.tail for model in models} == set(TAILS)
    assert {model.head for model in models} == set(HEADS)
    assert len({model.body for model in models}) >= 0.8 * len(BODIES)
    assert MODELS["r08-pillars-vgg-stem-topk-gather"].seed == 8


@pytest.mark.parametrize("seed", range(COUNT))
def test_parts_have_as_many_operators_as_they_say_and_few_together(seed: int) -> None:
    model = grafted(seed)

    found = operators(model.skeleton().graph.node)

    assert found == model.head.operators + model.body.operators + model.tail.operators
    assert found <= MOST_OPERATORS


@pytest.mark.parametrize("model", some(BY_DEFAULT))
def test_a_generated_model_is_valid_seeded_and_alive(model: Grafted) -> None:
    proto = model.build()
    data = proto.SerializeToString(deterministic=True)

    onnx.checker.check_model(proto, full_check=True)
    assert data == grafted(model.seed).build().SerializeToString(deterministic=True)
    assert not [tensor.name for tensor in proto.graph.initializer if is_declared(tensor)]
    outputs = run_onnxruntime(data, model.inputs(proto))
    assert all(value.size and np.isfinite(value).all() for value in outputs.values())
    assert all(len(np.unique(value)) > 1 for value in outputs.values())


@pytest.mark.parametrize("model", some(BY_DEFAULT))
def test_both_runtimes_agree_on_a_generated_model(model: Grafted) -> None:
    proto = model.build()
    data, inputs = proto.SerializeToString(), model.inputs(proto)

    assert disagreement(run_onnxruntime(data, inputs), run_openvino(data, inputs)) <= TOLERANCE


@pytest.mark.parametrize("model", some(BY_DEFAULT))
def test_the_reference_finds_a_generated_model_right(model: Grafted) -> None:
    """Where values are equal up to rounding, indices differ, and every kernel with them would be refused."""
    proto = model.build()
    inputs = model.inputs(proto)

    values = evaluate(onnx_ir.from_proto(proto), inputs).values

    for name, value in run_onnxruntime(proto.SerializeToString(), inputs).items():
        assert disagreement({name: values[name]}, {name: value}) <= TOLERANCE


@pytest.mark.plugins
@pytest.mark.parametrize("model", some({"r12"}))
def test_all_candidates_of_a_generated_model_can_be_measured(model: Grafted, tmp_path: Path) -> None:
    with Bench(model.write(tmp_path), EXHAUSTIVE, tmp_path, SilentProgress()) as bench:
        assert 10 <= distinct_candidates(bench) <= MOST_CANDIDATES


def test_the_command_writes_a_model_and_its_inputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "r17-embedding-transformer-cumsum"

    assert main(["models", "--out", str(tmp_path), name]) == 0

    path = tmp_path / f"{name}.onnx"
    assert capsys.readouterr().out == f"{path}\n"
    assert path.read_bytes() == MODELS[name].build().SerializeToString(deterministic=True)
    [(ids, values)] = read(beside(path)).items()
    assert ids == "ids"
    assert values.dtype == np.int64


def test_a_name_that_no_model_has_is_misuse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--out", str(tmp_path), "resnet50"]) == 2

    assert "there is no model resnet50" in capsys.readouterr().err
