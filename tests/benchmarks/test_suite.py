"""A run of the suite goes on from results that it finds."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from benchmarks import suite

RESULTS = Path(__file__).parents[2] / "benchmarks/results/suite-epyc-2-cores.json"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return Path(shutil.copy(RESULTS, tmp_path / "results.json"))


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of models of which a step ran; none does anything."""
    names = []

    def run_step(name: str, done: Path, command: Sequence[str], console: Console, again: bool) -> bool:
        names.append(done.name.partition(".")[0])
        return names[-1] != "resnet50"

    def result(model: suite.Model, without: str | None = None) -> dict[str, Any]:
        [old] = [each for each in models_of(RESULTS) if each["name"] == model.name]
        return {**old, "predicted_ms": 1e6}

    monkeypatch.setattr(suite, "run_step", run_step)
    monkeypatch.setattr(suite, "shapes", lambda model: [])
    monkeypatch.setattr(suite, "targets_of", lambda package: [])
    monkeypatch.setattr(suite.Model, "result", result)
    return names


def models_of(results: Path) -> list[dict[str, Any]]:
    models: list[dict[str, Any]] = json.loads(results.read_text(encoding="utf-8"))["models"]
    return models


def run(tmp_path: Path, results: Path, *arguments: str) -> int:
    return suite.main([*arguments, "--work", str(tmp_path / "work"), "--results", str(results)])


def test_models_in_the_results_are_not_run_in_an_empty_folder(tmp_path: Path, results: Path, ran: list[str]) -> None:
    assert run(tmp_path, results) == 0

    assert ran == []
    assert models_of(results) == models_of(RESULTS)


def test_a_model_whose_files_are_there_is_run_and_the_others_stay(
    tmp_path: Path, results: Path, ran: list[str]
) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "mnist.onnx").touch()

    assert run(tmp_path, results, "mnist", "vgg19") == 0

    assert set(ran) == {"mnist"}
    before, after = models_of(RESULTS), models_of(results)
    assert [model["name"] for model in after] == [model["name"] for model in before]
    assert [model["name"] for model, old in zip(after, before, strict=True) if model != old] == ["mnist"]


def test_again_runs_what_is_asked_for_and_keeps_nothing(tmp_path: Path, results: Path, ran: list[str]) -> None:
    assert run(tmp_path, results, "mnist", "--again") == 0

    assert set(ran) == {"mnist"}
    assert [model["name"] for model in models_of(results)] == ["mnist"]


def test_a_model_that_fails_is_not_shown_with_what_it_was(tmp_path: Path, results: Path, ran: list[str]) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "resnet50.onnx").touch()

    assert run(tmp_path, results, "resnet50") == 1

    report = json.loads(results.read_text(encoding="utf-8"))
    assert report["failed"] == ["resnet50"]
    assert "resnet50" not in [model["name"] for model in report["models"]]
    assert "| resnet50 |" not in results.with_suffix(".md").read_text(encoding="utf-8")
