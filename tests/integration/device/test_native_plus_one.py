"""`benchmarks/native_plus_one.py` on a device: rehearsed on a fake one, with `-m gpu` on NVIDIA's."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks import native_plus_one
from benchmarks.gpu_plan import usable
from benchmarks.gpu_steps import targets_here
from benchmarks.judge.contender import Contender
from benchmarks.judge.rounds import Outcome, Protocol
from collage.cli import main as collage
from collage_core.ir.io.model_io import load_model, save_model
from tests.integration.device.models import layers
from tests.integration.device.test_optimize import X
from tests.integration.device.toolchains import noted


def compared(work: Path, *arguments: str) -> tuple[int, Sequence[Mapping[str, Any]]]:
    results = work / "results.json"
    common = ["--work", str(work), "--results", str(results), "--preset", "quick", "--seconds", "0.02"]
    status = native_plus_one.main([*arguments, *common])
    return status, json.loads(results.read_text(encoding="utf-8"))["models"]


@pytest.fixture
def rehearsal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model; commands are run by this process, which has the presets of tests."""

    def run(command: Sequence[str]) -> None:
        done = CliRunner().invoke(collage, list(command))
        if done.exit_code:
            raise native_plus_one.CommandError(done.output)

    monkeypatch.setattr(native_plus_one, "run", run)
    monkeypatch.setattr(native_plus_one, "MODELS", {"layers": SimpleNamespace(make_inputs=lambda: {"x": X})})
    save_model(layers(), tmp_path / "layers.onnx")
    return tmp_path


class Noted:
    """In place of `collage optimize` and of the judge: commands are noted, and contenders take what is said here."""

    def __init__(self, took_us: Mapping[str, float]) -> None:
        self.commands: list[list[str]] = []
        self.contenders: list[Contender] = []
        self.took_us = took_us

    def run(self, command: Sequence[str]) -> None:
        self.commands.append(list(command))
        regions = [{"toolchain": "far@fake:0"}] * (3 if ".marked." in command[1] else 2)
        Path(command[command.index("--json") + 1]).write_text(json.dumps({"regions": regions}), encoding="utf-8")

    def compete(
        self, model: Path, inputs: object, outputs: object, contenders: Sequence[Contender], protocol: Protocol
    ) -> list[Outcome]:
        self.contenders += contenders
        return [Outcome(contender=each, rounds_us=[[self.took_us[each.name]]] * protocol.rounds) for each in contenders]


@pytest.mark.parametrize(
    ("collage_us", "status", "verdict"), [(10.0, 0, "no worse"), (9.0, 0, "better"), (12.0, 1, "WORSE")]
)
def test_the_same_toolchains_make_both_packages_and_their_ratio_is_judged(
    collage_us: float, status: int, verdict: str, rehearsal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = Noted({"collage": collage_us, "partition_for": 10.0})
    monkeypatch.setattr(native_plus_one, "run", noted.run)
    monkeypatch.setattr(native_plus_one, "compete", noted.compete)
    arguments = ["layers", "--device", "fake:0", "--toolchains", "far", "--native", "near", "--also", "beyond"]

    ended, [row] = compared(rehearsal, *arguments, "--rounds", "3")

    assert (ended, row["verdict"], row["ratio"]) == (status, verdict, pytest.approx(collage_us / 10))
    assert row["kernels"] == {"collage": 2, "partition_for": 3}
    chosen = [command[command.index("--toolchains") + 1] for command in noted.commands]
    assert chosen == ["far@fake:0,near,beyond"] * 2
    plain, marked = (Path(command[1]).name for command in noted.commands)
    assert (plain, marked) == ("layers.onnx", "layers.far.marked.onnx")
    left = [node.op_type for node in load_model(rehearsal / marked).graph if not node.domain]
    assert left == ["Softmax"]  # all else `partition --for` gave to the toolchain
    assert [Path(each.options["model"]).suffix for each in noted.contenders] == [".collage"] * 2
    page = (rehearsal / "results.md").read_text(encoding="utf-8")
    assert "native kernels (near) running what it does not take" in page


@pytest.mark.slow
def test_a_toolchain_of_a_device_with_native_kernels_is_no_worse_than_all_it_takes(rehearsal: Path) -> None:
    """`far` takes all but the Softmax, which `near`, on the CPU, runs in both packages."""
    before = len(noted())

    status, found = compared(
        rehearsal, "layers", "--device", "fake:0", "--toolchains", "far", "--native", "near", "--rounds", "3"
    )

    assert {line.split()[0] for line in noted()[before:]} == {"far", "near"}
    assert (status, [each["name"] for each in found]) in ((0, ["layers"]), (1, ["layers"]))  # who is faster is chance
    [row] = found
    assert row["toolchain"] == "far"
    assert row["verdict"] in ("better", "no worse", "WORSE")
    assert row["kernels"]["partition_for"] >= 3  # two stretches, and what is between them
    assert row["ci95"][0] <= row["ratio"] <= row["ci95"][1]


def test_what_nobody_takes_is_a_failure_in_words(rehearsal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: Sequence[str]) -> None:
        raise native_plus_one.CommandError(f"collage {command[0]}: no toolchain runs node 'softmax_0'")

    monkeypatch.setattr(native_plus_one, "run", run)
    status, [row] = compared(rehearsal, "layers", "--device", "fake:0", "--toolchains", "far", "--native", "near")

    assert status == 1
    assert row["verdict"] == "failed: collage optimize: no toolchain runs node 'softmax_0'"
    assert native_plus_one.row(row)[2:] == ("", "", "", "", row["verdict"])


def test_a_command_that_fails_says_why() -> None:
    with pytest.raises(native_plus_one.CommandError, match=r"collage optimize: .*no-such-model\.onnx"):
        native_plus_one.run(["optimize", "no-such-model.onnx", "-o", "x.collage"])


def test_native_kernels_are_the_references_on_the_cpu_and_tritons_on_a_gpu() -> None:
    def native(**options: Any) -> str:
        return native_plus_one.native_of(SimpleNamespace(**{"device": "cpu", "native": None} | options))  # type: ignore[arg-type]

    assert native() == "reference"
    assert native(device="cuda:1") == "triton@cuda:1"
    assert native(device="cuda:1", native="near") == "near"


def test_without_such_a_gpu_it_ends_with_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert native_plus_one.main(["mnist", "--work", str(tmp_path / "work"), "--device", "cuda:0"]) == 2
    assert "there is no NVIDIA GPU here" in capsys.readouterr().err


def test_by_default_each_toolchain_that_is_usable_on_the_gpu_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def note(name: str, toolchain: str, *rest: Any) -> dict[str, Any]:
        asked.append(toolchain)
        return {"name": name, "toolchain": toolchain, "kernels": None, "ratio": None, "ci95": None, "verdict": "better"}

    targets = ["triton@cuda:0", "cudnn@cuda:0", "cublas@cuda:1", "onnxruntime", "tensorrt@cuda:0"]
    monkeypatch.setattr(native_plus_one, "gpu", lambda device: "NVIDIA H100")
    monkeypatch.setattr(native_plus_one, "targets_here", lambda work, deadline_s: targets)
    monkeypatch.setattr(native_plus_one, "measured", note)

    assert native_plus_one.main(["mnist", "--work", str(tmp_path), "--device", "cuda:0"]) == 0
    assert asked == ["cudnn", "tensorrt"]


@pytest.mark.gpu("cupy", "triton")
def test_native_kernels_and_any_toolchain_here_are_no_worse_than_all_that_toolchain_takes(tmp_path: Path) -> None:
    toolchains = [name for name in usable(targets_here(tmp_path, 600.0), "cuda:0") if name != "triton"]
    if not toolchains:
        pytest.skip("no toolchain but triton is usable on cuda:0")

    status, found = compared(tmp_path, "mnist", "squeezenet", "--device", "cuda:0", "--rounds", "40")

    assert {each["toolchain"] for each in found} == set(toolchains)
    assert status == 0, found
