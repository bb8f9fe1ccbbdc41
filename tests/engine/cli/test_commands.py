"""What each command asks of the pipeline, and what it shows and writes."""

from __future__ import annotations

import dataclasses
import json
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

from collage.report.documents.codec import to_jsonable
from collage.report.documents.outputs import plans_json
from collage.report.facts.record import Record
from tests.engine.cli.conftest import FakePipeline
from tests.engine.report.records import MODEL, RECORD
from tests.valid_json import valid

Collage = Callable[..., Result]


def test_optimize_passes_on_every_option(collage: Collage, pipeline: FakePipeline, model: Path, inputs: Path) -> None:
    result = collage(
        *("optimize", model, "-o", "out.collage", "--toolchains", "onnxruntime,openvino(precision=bf16)"),
        *("--exclude", "a,b", "--exclude", "c(x=1,y=2)", "--input-shapes", "x:[1,3,224,224]"),
        *("--input-shapes", "m:0:1x2", "--inputs", inputs, "--preset", "quick", "--budget", "10m"),
        *(
            "--max-error",
            "0.02",
            "--calibration",
            inputs,
            "--metric",
            "m.py:f",
            "--max-drop",
            0.5,
            "--labelled",
            inputs,
            "--ranges",
            "percentile",
            "--tuning-db",
            "memory:",
            "--runner",
            "local",
            "--no-split-hosts",
            "--threads",
            2,
            "--warmup",
            0,
            "--iterations",
            7,
        ),
        *("--percentile", 90, "--duration", "0.5", "--rtol", "1e-4", "--reference", "onnxruntime", "--seed", 3),
        *("--pin", "conv_*=openvino", "--pin", "/a/=b/Add=onnxruntime", "--prefer", "openvino,onnxruntime"),
        *("--load-plan", inputs, "--save-plan", "plan.json", "--search", "two-level", "--deterministic"),
        "--retry-failed",
    )

    assert result.exit_code == 0, result.output
    assert vars(pipeline.options) == {
        "toolchains": "onnxruntime,openvino(precision=bf16)",
        "exclude": ("a", "b", "c(x=1,y=2)"),
        "input_shapes": {"x": (1, 3, 224, 224), "m:0": (1, 2)},
        "inputs": inputs,
        "preset": "quick",
        "search": "two-level",
        "budget_s": 600.0,
        "max_error": 0.02,
        "calibration": inputs,
        "metric": "m.py:f",
        "max_drop": 0.5,
        "labelled": inputs,
        "ranges": "percentile",
        "tuning_db": "memory:",
        "runner": "local",
        "split_hosts": False,
        "threads": 2,
        "seed": 3,
        "rtol": 1e-4,
        "reference": "onnxruntime",
        "warmup": 0,
        "iterations": 7,
        "percentile": 90.0,
        "duration_s": 0.5,
        "pins": ("conv_*=openvino", "/a/=b/Add=onnxruntime"),
        "prefer": "openvino,onnxruntime",
        "load_plan": inputs,
        "deterministic": True,
        "retry_failed": True,
    }
    assert Path("plan.json").read_text() == "a plan"


def test_a_trace_is_of_the_two_level_search_only(collage: Collage, pipeline: FakePipeline, model: Path) -> None:
    result = collage("optimize", model, "-o", "out.collage", "--trace", "trace.json")

    assert result.exit_code == 2
    assert "--trace is of --search two-level" in result.stderr
    assert not Path("out.collage").exists()


def test_the_picture_of_a_trace_overwrites_nothing(collage: Collage, pipeline: FakePipeline, model: Path) -> None:
    result = collage(
        *("optimize", model, "-o", "out.svg", "--search", "two-level", "--trace", "out.json", "--json", "x.json")
    )

    assert result.exit_code == 2
    assert "the picture of --trace would overwrite" in result.stderr


def test_optimize_saves_and_shows_the_result(collage: Collage, pipeline: FakePipeline, model: Path) -> None:
    result = collage("optimize", model, "-o", "out.collage")

    assert result.exit_code == 0, result.output
    assert Path("out.collage").stat().st_size == 2048
    assert RECORD.decision in result.stdout
    assert "saved out.collage (2.0 KiB)" in result.stdout
    assert "measuring (0/2) ..." in result.stderr
    assert pipeline.remembered == [(("ab12",), Path("out.collage"), None)]


@pytest.mark.parametrize(
    ("at", "said"), [("out.collage", "again): kept out.collage"), ("in.collage", "again): copied from in.collage:")]
)
def test_optimize_keeps_or_copies_what_is_up_to_date(
    at: str, said: str, collage: Collage, pipeline: FakePipeline, model: Path
) -> None:
    pipeline.copied_from = Path(at)

    result = collage("optimize", model, "-o", "out.collage")

    assert result.exit_code == 0, result.output
    assert said in " ".join(result.stdout.split())
    assert "out.collage (1.0 KiB)" in " ".join(result.stdout.split())
    assert RECORD.decision in result.stdout
    assert (pipeline.calls, pipeline.remembered) == ([], [])


@pytest.mark.parametrize("option", [["--anew"], ["--save-plan", "p.json"], ["--search", "two-level", "--trace", "t"]])
def test_what_needs_a_run_gets_one(option: list[str], collage: Collage, pipeline: FakePipeline, model: Path) -> None:
    pipeline.copied_from = Path("out.collage")

    collage("optimize", model, "-o", "out.collage", *option)

    assert [name for name, _ in pipeline.calls] == ["optimize"]


def test_json_on_standard_output_is_alone_there(collage: Collage, pipeline: FakePipeline, model: Path) -> None:
    result = collage("optimize", model, "-o", "out.collage", "--json", "-")

    assert [region["id"] for region in json.loads(result.stdout)["regions"]] == ["k0000", "k0001", "k0002"]
    assert RECORD.decision in result.stderr


def test_json_goes_to_a_file(collage: Collage, pipeline: FakePipeline, model: Path, package: Path) -> None:
    commands: dict[str, list[object]] = {
        "doctor": ["doctor"],
        "inspect": ["inspect", model],
        "optimize": ["optimize", model, "-o", "out.collage"],
        "run": ["run", package],
        "bench": ["bench", model, package, "--compare"],
        "compare": ["compare", model, package],
    }
    for name, arguments in commands.items():
        result = collage(*arguments, "--json", f"{name}.json")
        assert result.exit_code == 0, result.output
        schema = "plan" if name == "optimize" else name
        assert valid(schema, Path(f"{name}.json").read_text())["schema_version"] == 2


def test_bench_keeps_defaults_that_are_not_overridden(
    collage: Collage, pipeline: FakePipeline, model: Path, package: Path
) -> None:
    result = collage("bench", model, package, "--compare", "--rounds", 4, "--duration", "2s")

    assert result.exit_code == 0, result.output
    assert pipeline.calls[-1][1]["paths"] == (model, package)
    assert (pipeline.options.compare, pipeline.options.rounds, pipeline.options.duration_s) == (True, 4, 2.0)
    assert (pipeline.options.warmup, pipeline.options.iterations) == (5, 3)
    assert "0.651-0.664" in result.stdout


def test_compare_fails_beyond_tolerance(collage: Collage, pipeline: FakePipeline, model: Path, package: Path) -> None:
    assert collage("compare", model, package, "--rtol", "0.1").exit_code == 0
    assert pipeline.calls[-1][1]["rtol"] == 0.1
    pipeline.compare_passes = False

    result = collage("compare", model, package)

    assert result.exit_code == 1
    assert "BEYOND TOLERANCE" in result.stdout
    assert "Error: 1 of 1 value beyond tolerance" in result.stderr


def test_run_saves_outputs_whatever_their_names(
    collage: Collage, pipeline: FakePipeline, package: Path, inputs: Path
) -> None:
    result = collage("run", package, "--inputs", inputs, "--save-outputs", "y.npz", "--profile", "trace.json")

    assert result.exit_code == 0, result.output
    with np.load("y.npz") as saved:
        np.testing.assert_array_equal(saved["file"], np.full((1, 4), 2, np.float32))
    assert json.loads(Path("trace.json").read_text()) == {"traceEvents": []}
    assert "ran on the inputs given" in result.stdout
    assert "k0000" in result.stdout


def test_run_says_that_inputs_were_random(collage: Collage, pipeline: FakePipeline, package: Path) -> None:
    result = collage("run", package, "--seed", 7)

    assert result.exit_code == 0, result.output
    assert "random inputs (seed 7)" in result.stdout


def test_run_says_how_kernels_are_launched_on_devices(collage: Collage, pipeline: FakePipeline, package: Path) -> None:
    result = collage("run", package, "--json", "-")

    assert json.loads(result.stdout)["device_work"] == {
        "graph_launches": 0,
        "eager_launches": 1,
        "copies": 2,
        "synchronisations": 1,
        "launches": [{"device": "cuda:0", "mode": "eager", "kernels": 1, "reason": "it allocates"}],
    }
    assert "1 kernel launched one by one: it allocates" in collage("run", package).stdout


def test_doctor_fails_when_nothing_is_usable(collage: Collage, pipeline: FakePipeline) -> None:
    assert collage("doctor").exit_code == 0
    report = pipeline.doctor()
    bare = type(report)(collage_version="0.1.0", host=report.host)
    pipeline.doctor = lambda: bare  # type: ignore[method-assign]

    result = collage("doctor")

    assert result.exit_code == 1
    assert "No toolchain is usable" in result.stderr


def packaged(*records: Any) -> Any:
    """A package of plans with these records."""
    return types.SimpleNamespace(plans=[types.SimpleNamespace(record=record) for record in records])


def with_batch(batch: int) -> Record:
    """The record of a plan for another shape."""
    return dataclasses.replace(RECORD, model=dataclasses.replace(MODEL, input_shapes={"x": (batch, 3)}))


def test_explain_reads_the_record_of_a_package(
    collage: Collage, monkeypatch: pytest.MonkeyPatch, package: Path
) -> None:
    runtime = types.ModuleType("collage.runtime.package")
    runtime.load_package = lambda path: packaged(to_jsonable(RECORD))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "collage.runtime.package", runtime)

    result = collage("explain", package, "--json", "record.json")

    assert result.exit_code == 0, result.output
    assert "k0001  openvino: 1 node, 40.1 % of the time" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 100
    assert valid("plan", Path("record.json").read_text()) == json.loads(plans_json([RECORD]))


def test_explain_shows_plans_for_several_shapes_beside_each_other(
    collage: Collage, monkeypatch: pytest.MonkeyPatch, package: Path
) -> None:
    records = [with_batch(1), with_batch(4)]
    runtime = types.ModuleType("collage.runtime.package")
    runtime.load_package = lambda path: packaged(*map(to_jsonable, records))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "collage.runtime.package", runtime)

    result = collage("explain", package, "--json", "records.json")

    assert result.exit_code == 0, result.output
    cells = [line.split() for line in result.stdout.splitlines() if line.startswith(" x:[")]
    assert [each[:3] for each in cells] == [["x:[1,3]", "96", "openvino"], ["x:[4,3]", "96", "openvino"]]
    assert "as above" in result.stdout, "both plans give the same nodes to the same targets"
    assert result.stdout.count("k0001  openvino: 1 node, 40.1 % of the time") == 2
    assert valid("plan", Path("records.json").read_text()) == json.loads(plans_json(records))


def test_explain_refuses_a_record_of_another_version(
    collage: Collage, monkeypatch: pytest.MonkeyPatch, package: Path
) -> None:
    runtime = types.ModuleType("collage.runtime.package")
    runtime.load_package = lambda path: packaged({"schema_version": 9})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "collage.runtime.package", runtime)

    result = collage("explain", package)

    assert result.exit_code == 1
    assert "its schema version is 9, this Collage reads 2" in result.stderr
