"""`collage bench`: contenders side by side, each in a process of its own."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from collage.cli import main
from collage.prepare.steps import prepare
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.io.model_io import load_model
from tests.integration.commands.conftest import BOTH
from tests.integration.commands.models import written
from tests.integration.commands.mutation import Workshop
from tests.valid_json import valid

pytestmark = pytest.mark.plugins

SHORT = ("--rounds", "2", "--duration", "0.02", "--iterations", "2", "--warmup", "1", "--toolchains", BOTH)


@dataclasses.dataclass(frozen=True)
class Made:
    """A model that OpenVINO refuses a node of, and a mixed package of it."""

    model: Path
    package: Path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("bench")
    model, package = written("refused", folder), folder / "mixed.collage"
    graph = DataflowGraph(prepare(load_model(model)))
    theirs = 1 << graph.index_of("pool")
    first = (theirs - 1) & graph.needs_kernel
    with Workshop() as workshop:
        parts = [("openvino", first), ("onnxruntime", graph.needs_kernel & ~first)]
        workshop.package(graph, parts, package)
    return Made(model, package)


def bench(*arguments: object) -> tuple[Result, dict[str, dict[str, Any]], dict[str, Any]]:
    """The result, its contenders by name, and its JSON."""
    result = CliRunner().invoke(main, ["bench", *map(str, arguments), *SHORT, "--json", "-"])
    facts = valid("bench", result.stdout) if result.exit_code == 0 else {}
    return result, {each["name"]: each for each in facts.get("comparison", {}).get("contenders", ())}, facts


def test_a_package_is_compared_with_every_single_toolchain_and_one_that_fails_is_told(made: Made) -> None:
    result, contenders, facts = bench(made.package, "--compare")

    assert result.exit_code == 0, result.stderr
    assert {"collage", "onnxruntime", "onnxruntime(spin=true)", "openvino"} <= set(contenders)
    assert contenders["collage"]["kind"] == "mixed"
    assert contenders["collage"]["toolchains"] == ["onnxruntime", "openvino"]
    assert contenders["collage"]["regions"] == 2
    assert contenders["onnxruntime"]["kind"] == "single"
    assert contenders["openvino"]["latency_ms"] is None
    assert contenders["openvino"]["failed"]
    assert set(contenders["onnxruntime"]["latency_ms"]) == {"p50", "p90", "p99", "mean", "min", "n", "ci95"}
    assert contenders["onnxruntime"]["latency_ms"]["n"] >= 4
    for name in ("collage", "onnxruntime"):
        called = contenders[name]["as_called"]
        assert called["latency_ms"]["n"] >= 4
        assert 0 < called["ratio_ci95"][0] <= called["ratio"] <= called["ratio_ci95"][1]
    assert contenders["openvino"]["as_called"] is None
    against = facts["comparison"]
    assert against["best_single"] in ("onnxruntime", "onnxruntime(spin=true)")
    assert against["speedup_ci95"][0] <= against["speedup_vs_best_single"] <= against["speedup_ci95"][1]
    assert {"schema_version", "model", "host", "threads"} <= set(facts)


@pytest.mark.slow
def test_a_model_alone_stands_for_every_single_toolchain(made: Made) -> None:
    result, contenders, facts = bench(made.model)

    assert result.exit_code == 0, result.stderr
    assert "collage" not in contenders
    assert contenders["onnxruntime"]["latency_ms"] is not None
    assert facts["comparison"]["speedup_vs_best_single"] is None


def test_two_models_are_misuse(made: Made, tmp_path: Path) -> None:
    result, _, _ = bench(made.model, written("cnn", tmp_path))

    assert result.exit_code == 2


def test_nothing_that_can_be_timed_is_failure(made: Made) -> None:
    arguments = [*SHORT[:-1], "openvino"]
    result = CliRunner().invoke(main, ["bench", str(made.model), *arguments])

    assert result.exit_code == 1
    assert "no contender could be timed" in result.stderr


def test_sessions_side_by_side_have_a_throughput(made: Made) -> None:
    result, contenders, facts = bench(made.package, "--streams", "2", "--threads", "1")

    assert result.exit_code == 0, result.stderr
    assert facts["comparison"]["streams"] == 2
    assert contenders["collage"]["per_s"] > 0
    assert "2 sessions side by side" in result.stderr
