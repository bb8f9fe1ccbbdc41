"""A run of `benchmarks/gpu.py`, with a judge that says what each contender took: what it writes, and how it goes on."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from benchmarks import gpu
from benchmarks.gpu_plan import PRECISIONS, Case, Entrant, Package
from benchmarks.judge.contender import Contender
from benchmarks.judge.rounds import Outcome, Protocol
from benchmarks.judge.statistics import disagreement


def case(name: str) -> Case:
    return Case(name=name, batch=1, precision=PRECISIONS["fp32"])


class Track:
    """A run whose files are there and whose judge says what each contender took; slow tests have real ones."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.work, self.results = folder / "work", folder / "results.json"
        self.took_us = {"collage": 2.0, "torch-eager": 6.0, "max-autotune": 4.0, "triton": 5.0}
        self.failed: dict[str, str] = {}
        monkeypatch.setattr(gpu, "entrants", self.entrants)
        monkeypatch.setattr(gpu, "compete", self.compete)
        monkeypatch.setattr(gpu, "targets_here", lambda work, deadline_s: [])
        monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
        for name in os.environ.keys() & {"TORCHINDUCTOR_CACHE_DIR", "CUDA_DEVICE_ORDER"}:
            monkeypatch.delenv(name)
        monkeypatch.setenv("CUDA_DEVICE_ORDER", "")  # so that what the run sets is undone
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder))
        self.work.mkdir()

    def model(self, of: Case) -> None:
        files, x = of.files(self.work), np.arange(1.0, 4.0, dtype=np.float32)
        ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in "xy"]
        graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "double", ends[:1], ends[1:])
        onnx.save(helper.make_model(graph), files.model)
        np.savez(files.inputs, x=x)
        np.savez(files.expected, y=2 * x)

    def entrants(self, of: Case, work: Path, only: object, toolchains: str, device: str = "cuda:0") -> list[Entrant]:
        named = [
            Entrant(contender=Contender(name=name, file=Path("none.py"), kind=kind))
            for name in self.took_us
            for kind in ("single" if name == "triton" else "outside",)
        ]
        missing = Package(path=work / f"{of.key}.cublas.collage", toolchains="cublas")
        missing.path.with_name(f"{missing.path.name}.refused.txt").write_text("no rule for Softmax")
        alone = Contender(name="cublas", file=Path("none.py"), kind="single")
        return [*named, Entrant(contender=alone, package=missing)]

    def compete(
        self,
        model: Path,
        inputs: Mapping[str, Any],
        output_names: Sequence[str],
        contenders: Sequence[Contender],
        protocol: Protocol,
        tell: Callable[[str], None],
        *,
        expected: Mapping[str, Any],
    ) -> list[Outcome]:
        assert model.is_file()
        tell("round 1")
        return [
            Outcome(contender=each, failed=self.failed[each.name])
            if each.name in self.failed
            else Outcome(
                contender=each,
                rounds_us=[[1e9, self.took_us[each.name], self.took_us[each.name]]] * protocol.rounds,
                max_error=disagreement(expected, {output_names[0]: 2 * inputs["x"]}),
                note=f"{each.name} runs",
            )
            for each in contenders
        ]

    def run(self, *arguments: str) -> int:
        common = ["--device", "cpu", "--rounds", "2", "--seconds", "0.01", "--batch", "1"]
        return gpu.main([*arguments, *common, "--work", str(self.work), "--results", str(self.results)])

    def races(self) -> list[dict[str, Any]]:
        content: dict[str, Any] = json.loads(self.results.read_text(encoding="utf-8"))
        return content["races"]


@pytest.fixture
def track(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Track:
    return Track(tmp_path, monkeypatch)


def test_a_run_writes_every_race_with_what_did_not_run_and_resumes(track: Track) -> None:
    track.model(case("vit"))
    track.model(case("gpt2"))

    assert track.run("vit") == 0
    (race,) = track.races()
    rows = {row["name"]: row for row in race["contenders"]}
    assert rows["cublas"] == {"name": "cublas", "kind": "single", "failed": "no rule for Softmax"}
    assert rows["collage"]["note"] == "collage runs"
    assert rows["collage"]["max_error"] == 0.0
    assert race["best_single"] == "triton"
    assert race["device"] == "no GPU: a rehearsal on the CPU"
    assert race["rounds_us"] == {name: [took_us] * 2 for name, took_us in track.took_us.items()}

    assert track.run("vit", "gpt2") == 0
    assert track.races()[0] == race
    assert [each["key"] for each in track.races()] == ["vit-b1-fp32", "gpt2-b1-fp32"]
    page = track.results.with_suffix(".md").read_text(encoding="utf-8")
    assert "a rehearsal on the CPU" in page
    assert "- cublas: no rule for Softmax (vit, batch 1, fp32; gpt2, batch 1, fp32)" in page


def test_a_rehearsal_does_not_stand_for_a_race_on_a_device(track: Track) -> None:
    track.model(case("vit"))
    assert track.run("vit") == 0
    content = json.loads(track.results.read_text(encoding="utf-8"))
    content["races"][0] |= {"device": "NVIDIA H100", "rounds_us": {}}
    track.results.write_text(json.dumps(content), encoding="utf-8")

    assert track.run("vit") == 0
    (race,) = track.races()
    assert race["device"] == "no GPU: a rehearsal on the CPU"
    assert race["rounds_us"]


def test_a_plan_that_is_slower_than_a_single_toolchain_ends_with_1(track: Track) -> None:
    track.model(case("vit"))
    np.savez(case("vit").files(track.work).expected, y=np.array([2.0, 4.0, 9.0], np.float32))
    assert track.run("vit") == 0  # who is right cannot be told: everybody says the same
    track.model(case("gpt2"))
    track.took_us["collage"] = 5.2

    assert track.run("gpt2") == 1
    assert "it may be slower than triton: up to 1.04 of its time" in track.results.with_suffix(".md").read_text()


def test_a_model_that_cannot_be_written_costs_its_race_only(track: Track) -> None:
    track.model(case("gpt2"))
    model = case("vit").files(track.work).model
    model.with_name(f"{model.name}.refused.txt").write_text("out of memory")

    assert track.run("vit", "gpt2") == 1
    failed, ran = track.races()
    assert failed["contenders"][0]["failed"] == "its model could not be written: out of memory"
    assert "latency_ms" in ran["contenders"][0]


def test_a_run_whose_time_is_up_says_so_and_keeps_what_it_has(track: Track, capsys: pytest.CaptureFixture[str]) -> None:
    track.model(case("vit"))

    assert track.run("vit", "--minutes", "0.1") == 3
    assert "Time is up before the model vit-b1-fp32" in " ".join(capsys.readouterr().out.split())
    assert not track.results.exists()


@pytest.mark.parametrize(("minutes", "status"), [(1.0, 3), (60.0, 0)])
def test_a_contender_that_only_lacked_time_is_raced_again_and_one_that_hangs_is_not(
    minutes: float, status: int, track: Track
) -> None:
    track.model(case("vit"))
    track.failed = {"max-autotune": "no answer within 40 s"}

    assert track.run("vit", "--minutes", str(minutes), "--deadline", "300") == status
    assert track.results.exists() == (status == 0)
