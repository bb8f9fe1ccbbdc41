"""Many models at once: a package for each, checked there, and kept by a later run."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from click.testing import CliRunner

import collage
from collage.cli import main
from tests.hardship import with_tests

OPTIONS = ("--toolchains", "onnxruntime", "--preset", "quick", "--threads", "1")


def write_model(path: Path, scale: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 21]>
        g (float[4,8] x) => (float[4,8] y) <float s = {{{scale}}}> {{ a = Mul(x, s)  b = Relu(a)  y = Add(b, x) }}"""
    )
    onnx.save(model, path)


@pytest.fixture
def models(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    write_model(folder / "one.onnx", 2.0)
    write_model(folder / "deeper" / "two.onnx", 3.0)
    return folder


@pytest.fixture(autouse=True)
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLLAGE_TUNING_DB", str(tmp_path / "tuning.sqlite3"))


def optimize_all(models: Path, output: Path, *more: str, status: int = 0) -> dict[str, Any]:
    report = output.with_suffix(".json")
    arguments = ["optimize-all", str(models), "-o", str(output), *OPTIONS, "--json", str(report), *more]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == status, done.output
    found: dict[str, Any] = json.loads(report.read_text())
    return found


def digests(folder: Path) -> dict[str, str]:
    packages = sorted(folder.rglob("*.collage"))
    return {str(each): hashlib.sha256(each.read_bytes()).hexdigest() for each in packages}


@pytest.mark.slow
def test_each_model_becomes_a_package_that_is_right_and_later_runs_keep_it(models: Path, tmp_path: Path) -> None:
    output = tmp_path / "packages"

    first = optimize_all(models, output)
    made = digests(output)
    again = optimize_all(models, output)
    write_model(models / "one.onnx", 4.0)
    third = optimize_all(models, output)

    assert [entry["model"] for entry in first["entries"]] == ["deeper/two.onnx", "one.onnx"]
    assert [entry["made"] for entry in first["entries"]] == [True, True]
    assert [entry["made"] for entry in again["entries"]] == [False, False]
    assert [entry["made"] for entry in third["entries"]] == [False, True]
    assert len(made) == 2
    x = np.linspace(-1, 1, 32, dtype=np.float32).reshape(4, 8)
    for entry in third["entries"]:
        assert entry["reason"] == ""
        assert entry["ratio"] == pytest.approx(1.0)
        [mine] = collage.load(output / entry["package"]).run(None, {"x": x})
        [theirs] = onnxruntime.InferenceSession(str(models / entry["model"])).run(None, {"x": x})
        np.testing.assert_allclose(mine, theirs, rtol=1e-6)


@pytest.mark.slow
def test_a_run_that_was_killed_is_resumed(models: Path, tmp_path: Path) -> None:
    output = tmp_path / "packages"
    command = [sys.executable, "-P", "-m", "collage.cli", "optimize-all", str(models), "-o", str(output), *OPTIONS]
    with subprocess.Popen(
        command, env=with_tests(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        deadline = time.monotonic() + 300
        while not list(output.rglob("*.job")):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
    kept = digests(output)

    report = optimize_all(models, output)

    assert [entry["reason"] for entry in report["entries"]] == ["", ""]
    assert sum(not entry["made"] for entry in report["entries"]) == len(kept) >= 1
    assert {path: digests(output)[path] for path in kept} == kept


@pytest.mark.slow
def test_a_model_that_cannot_be_used_costs_itself(models: Path, tmp_path: Path) -> None:
    broken = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21, "other" : 1]>
        g (float[4] x) => (float[4] y) { y = other.Unheard(x) }"""
    )
    onnx.save(broken, models / "broken.onnx")

    report = optimize_all(models, tmp_path / "packages", status=1)

    reasons = {entry["model"]: entry["reason"] for entry in report["entries"]}
    assert reasons["one.onnx"] == reasons["deeper/two.onnx"] == ""
    assert "Unheard" in reasons["broken.onnx"]


@pytest.mark.slow
def test_each_model_takes_the_shapes_of_the_inputs_that_it_has(models: Path, tmp_path: Path) -> None:
    free = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]>
        g (float[N,8] free) => (float[N,8] y) { y = Relu(free) }"""
    )
    onnx.save(free, models / "free.onnx")

    without = optimize_all(models, tmp_path / "packages", status=1)
    report = optimize_all(models, tmp_path / "packages", "--input-shapes", "free:[3,8]")

    reasons = {entry["model"]: entry["reason"] for entry in without["entries"]}
    assert reasons.pop("free.onnx").startswith("input 'free': dimension N of")
    assert set(reasons.values()) == {""}
    assert {entry["model"]: entry["made"] for entry in report["entries"]} == {
        "deeper/two.onnx": False,
        "free.onnx": True,
        "one.onnx": False,
    }


def test_a_folder_without_models_is_misuse(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["optimize-all", str(tmp_path), "-o", str(tmp_path / "out")])

    assert done.exit_code == 2
    assert "there is no ONNX file in" in done.stderr


def test_a_shape_of_an_input_that_no_model_has_is_misuse(models: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(
        main, ["optimize-all", str(models), "-o", str(tmp_path / "out"), "--input-shapes", "z:[3,8]"]
    )

    assert done.exit_code == 2
    assert "no model has an input z" in done.stderr


def test_a_machine_that_nobody_has_is_misuse(models: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(
        main, ["optimize-all", str(models), "-o", str(tmp_path / "out"), "--machine", "no such machine"]
    )

    assert done.exit_code == 2
    assert "local has no machine no such machine; it has " in " ".join(done.stderr.split())
