"""The commands over real toolchains: what they print, write and exit with."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from collage.cli import main
from collage.commands.load import load
from collage.commands.optimize import optimize
from collage.options import OptimizeOptions
from collage.runtime.package import load_package
from collage_core.ir.io.model_io import save_model
from collage_testing.graphs import GraphBuilder
from tests.integration.commands.conftest import BOTH, TINY_ARGUMENTS, check
from tests.integration.commands.models import inputs, reference, written
from tests.valid_json import valid


@dataclasses.dataclass(frozen=True)
class Ran:
    """Two runs of `optimize` over one database, in one folder."""

    folder: Path
    first: dict[str, Any]
    second: dict[str, Any]


def collage(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def said(result: Result) -> str:
    """Standard error as one line: how it is wrapped depends on the screen."""
    return " ".join(result.stderr.split())


def optimized(folder: Path, number: int, *arguments: str) -> str:
    """Optimize a model into a numbered package; return what was printed, as one line."""
    result = collage(
        *("optimize", folder / "cnn.onnx", "-o", folder / f"{number}.collage", "--json", folder / f"{number}.json"),
        *("--toolchains", BOTH, "--tuning-db", folder / "tuning.sqlite", *TINY_ARGUMENTS, *arguments),
    )
    assert result.exit_code == 0, result.stderr
    return " ".join(result.stdout.split())


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("ran")
    written("cnn", folder)
    for number in (1, 2):
        optimized(folder, number, "--anew")
    return Ran(folder, *(valid("plan", (folder / f"{number}.json").read_text()) for number in (1, 2)))


@pytest.mark.plugins
def test_optimize_writes_the_json_that_is_promised(ran: Ran) -> None:
    facts = ran.first

    assert {"prepare", "candidates", "measure", "search", "refine", "total"} <= set(facts["search"]["seconds"])
    contenders = facts["comparison"]["contenders"]
    assert contenders[0]["name"] == "collage"
    assert {"onnxruntime", "onnxruntime(spin=true)", "openvino"} <= {each["name"] for each in contenders}
    assert facts["predicted_ms"] > 0
    assert facts["measured_ms"] == contenders[0]["latency_ms"]["p50"]


@pytest.mark.plugins
def test_a_search_remembers_the_best_plan_over_time(ran: Ran) -> None:
    history = ran.first["search"]["history"]

    assert history
    assert all(later["seconds"] >= earlier["seconds"] for earlier, later in itertools.pairwise(history))
    assert all(later["candidates"] >= earlier["candidates"] for earlier, later in itertools.pairwise(history))
    assert all(later["predicted_ms"] != earlier["predicted_ms"] for earlier, later in itertools.pairwise(history))


@pytest.mark.plugins
def test_regions_cover_the_model_each_node_once(ran: Ran) -> None:
    nodes = [node for region in ran.first["regions"] for node in region["nodes"]]

    assert len(nodes) == len(set(nodes)) <= ran.first["model"]["nodes"]


@pytest.mark.plugins
def test_a_second_run_measures_nothing_and_chooses_the_same(ran: Ran) -> None:
    first, second = ran.first["search"], ran.second["search"]

    assert first["measured"] > 0
    assert (second["measured"], second["distinct_candidates"]) == (0, first["distinct_candidates"])
    assert second["cache_hits"] > 0
    decided = ("id", "target", "nodes", "cost_us", "cost_ci95_us")
    assert [[region[key] for key in decided] for region in ran.second["regions"]] == [
        [region[key] for key in decided] for region in ran.first["regions"]
    ]
    assert ran.second["comparison"] == ran.first["comparison"]


@pytest.mark.plugins
def test_what_was_optimized_is_kept_or_copied_and_not_optimized_again(
    ran: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collage.commands.optimize.optimize", lambda *_, **__: pytest.fail("it was optimized again"))
    package = ran.folder / "2.collage"
    before = package.read_bytes(), package.stat().st_mtime_ns

    kept, copied = optimized(ran.folder, 2), optimized(ran.folder, 3)

    assert f"kept {package}" in kept
    assert "copied from" in copied
    assert (package.read_bytes(), package.stat().st_mtime_ns) == before
    assert (ran.folder / "3.collage").read_bytes() == before[0]
    assert [json.loads((ran.folder / f"{number}.json").read_text()) for number in (2, 3)] == [ran.second] * 2


@pytest.mark.plugins
def test_explain_reads_what_the_package_keeps(ran: Ran) -> None:
    text = collage("explain", ran.folder / "2.collage")
    facts = collage("explain", ran.folder / "2.collage", "--json", "-")

    assert text.exit_code == 0, text.stderr
    said = " ".join(text.stdout.split())
    for region in ran.second["regions"]:
        assert region["id"] in said
        assert region["toolchain"] in said
    document = json.loads(facts.stdout)
    del document["derived"]
    assert document == load_package(ran.folder / "2.collage").plan.record
    assert json.loads(facts.stdout) == ran.second


@pytest.mark.plugins
def test_the_package_of_a_run_that_built_nothing_anew_is_right(ran: Ran) -> None:
    model = ran.folder / "cnn.onnx"
    feeds = inputs(model)
    session = load(ran.folder / "2.collage")
    names = [output.name for output in session.get_outputs()]

    check(dict(zip(names, session.run(None, feeds), strict=True)), reference(model, feeds))
    assert collage("compare", model, ran.folder / "2.collage").exit_code == 0


@pytest.mark.plugins
def test_a_package_of_another_model_is_misuse(ran: Ran, tmp_path: Path) -> None:
    result = collage("compare", written("refused", tmp_path), ran.folder / "1.collage")

    assert result.exit_code == 2
    assert "1.collage was not made from" in said(result)
    assert said(result).endswith("refused.onnx: they do not have the same values")


@pytest.mark.plugins
def test_a_node_nobody_runs_is_named_with_every_refusal(tmp_path: Path) -> None:
    result = collage(
        "optimize",
        written("refused", tmp_path),
        "-o",
        tmp_path / "out.collage",
        "--toolchains",
        "openvino",
        "--tuning-db",
        "memory:",
        *TINY_ARGUMENTS,
    )

    assert result.exit_code == 1
    assert "no toolchain runs node(s) 'pool': 'pool' (AveragePool): openvino: " in said(result)
    assert "itself failed" not in said(result)
    assert not (tmp_path / "out.collage").exists()


def own_operator(folder: Path) -> Path:
    """A model with an operator of a domain nobody knows."""
    g = GraphBuilder("own")
    value = g.op("Relu", g.input("x", 2, 2))
    own = g.op("Whirl", value, name="whirl", domain="com.example")
    own.type, own.shape = value.type, value.shape
    save_model(g.model(g.op("Exp", own)), folder / "own.onnx")
    return folder / "own.onnx"


@pytest.mark.parametrize("toolchains", ["reference", pytest.param("openvino,reference", marks=pytest.mark.plugins)])
def test_an_operator_nobody_knows_is_named_with_every_refusal(toolchains: str, tmp_path: Path) -> None:
    result = collage(
        "optimize",
        own_operator(tmp_path),
        "-o",
        tmp_path / "out.collage",
        "--toolchains",
        toolchains,
        "--tuning-db",
        "memory:",
        *TINY_ARGUMENTS,
    )

    assert result.exit_code == 1
    for name in toolchains.split(","):
        assert f"'whirl' (Whirl): {name}: " in said(result)


@pytest.mark.plugins
@pytest.mark.slow
def test_what_only_a_toolchain_computes_is_compared_with_that_and_said_to_be_unchecked(tmp_path: Path) -> None:
    g = GraphBuilder("contributed")
    value = g.op("Relu", g.input("x", 2, 8))
    own = g.op("QuickGelu", value, name="gelu", domain="com.microsoft")
    own.type, own.shape = value.type, value.shape
    model, package, report = tmp_path / "own.onnx", tmp_path / "own.collage", tmp_path / "compared.json"
    save_model(g.model(g.op("Exp", own)), model)

    made = collage(
        "optimize", model, "-o", package, "--toolchains", "onnxruntime", "--tuning-db", "memory:", *TINY_ARGUMENTS
    )
    assert made.exit_code == 0, made.stderr
    compared = collage("compare", model, package, "--reference", "onnxruntime", "--json", report)

    assert compared.exit_code == 0, compared.stderr
    assert "gelu" in json.dumps(valid("compare", report.read_text())["unchecked"])
    assert collage("compare", model, package, "--reference", "openvino").exit_code == 1


def test_an_unknown_toolchain_is_misuse(tmp_path: Path) -> None:
    result = collage("optimize", written("cnn", tmp_path), "-o", tmp_path / "out.collage", "--toolchains", "tvm")

    assert result.exit_code == 2
    assert "no toolchain 'tvm' is installed" in said(result)


def test_the_reference_alone_runs_a_model_without_any_plugin(tmp_path: Path) -> None:
    model = written("cnn", tmp_path)
    feeds = inputs(model)
    options = OptimizeOptions(toolchains="reference", tuning_db="memory:", preset="quick", iterations=1, duration_s=0.0)

    optimized = optimize(model, options)
    optimized.save(tmp_path / "plan.collage")
    np.savez(tmp_path / "in.npz", **feeds)  # type: ignore[arg-type]

    [y] = optimized.session().run(None, feeds)
    check({"softmax_0": y}, reference(model, feeds))
    assert {region.toolchain for region in optimized.record.regions} == {"reference"}
    assert collage("run", tmp_path / "plan.collage", "--inputs", tmp_path / "in.npz").exit_code == 0
    assert collage("compare", model, tmp_path / "plan.collage").exit_code == 0
