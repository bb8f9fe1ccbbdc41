"""Which toolchains `benchmarks/gpu.py` mixes by default, and the ablation of the paper: rows, packages, table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from benchmarks import gpu
from benchmarks.gpu_page import HEADINGS, ablation_lines, faults, markdown
from benchmarks.gpu_plan import COLLAGE, PRECISIONS, TOOLCHAINS, Case, ablation, entrants, usable
from benchmarks.gpu_steps import Clock, unusable_here

CASE = Case(name="vit", batch=1, precision=PRECISIONS["fp32"])
TARGETS = [
    *("onnxruntime", "tensorrt_rtx@cuda:1", "cublas@cuda:0", "cublas(precision=tf32)@cuda:0"),
    *("triton@cuda:0", "cudnn@cuda:0", "cudnn@cuda:1", "tensorrt@cuda:0"),
]


def test_toolchains_are_added_one_by_one_to_native_code_generation_and_tensorrt_in_both_editions_at_once() -> None:
    found = ablation(",".join(sorted(TOOLCHAINS)))

    assert [step.toolchains for step in found] == [
        "triton",
        "triton,cublas",
        "triton,cublas,cudnn",
        "triton,cublas,cudnn,cutlass",
        "triton,cublas,cudnn,cutlass,tensorrt,tensorrt_rtx",
    ]
    assert [step.contender for step in found[:2]] == ["triton", "triton+cublas"]
    assert found[-1].contender == COLLAGE


def test_what_is_missing_is_no_step_and_what_is_not_for_gpus_is_the_last_one() -> None:
    found = ablation("onnxruntime,cudnn,triton(precision=tf32)")

    assert [step.added for step in found] == [("triton(precision=tf32)",), ("cudnn",), ("onnxruntime",)]
    assert ablation("cublas") == []


def test_every_row_has_a_package_of_its_own_but_those_that_run_anyway(tmp_path: Path) -> None:
    found = {each.contender.name: each for each in entrants(CASE, tmp_path, None, "cublas,cudnn,triton")}
    packages = {name: each.package for name, each in found.items() if each.package is not None}

    assert {name: package.toolchains for name, package in packages.items()} == {
        "collage": "cublas,cudnn,triton",
        "triton+cublas": "triton,cublas",
        **{name: name for name in ("cublas", "cudnn", "triton")},
    }
    assert len({package.path for package in packages.values()}) == 5
    assert found["triton+cublas"].contender.kind == "outside"  # a mix: it is no single toolchain to be compared with


def test_a_package_is_not_taken_for_one_of_other_toolchains(tmp_path: Path) -> None:
    """What is there is not made again, so its name says what it is made of; in which order is no matter."""

    def package(toolchains: str) -> Path:
        [made] = [each.package for each in entrants(CASE, tmp_path, [COLLAGE], toolchains) if each.package is not None]
        return made.path

    assert package("cublas,triton") == package("triton,cublas")
    assert package("cublas,triton") != package("cublas,cudnn,triton")
    assert package("triton") != package("triton(precision=tf32)")


def test_a_row_can_be_asked_for_alone(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "--list",
        "vit",
        "--batch",
        "1",
        "--only",
        "triton+cublas,collage",
        "--toolchains",
        "triton,cublas,cudnn",
    ]

    assert gpu.main(arguments) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [
        *("vit-b1-fp32:", "triton+cublas", "collage")
    ]


def test_usable_are_those_made_for_gpus_that_have_a_target_on_the_device() -> None:
    assert usable(TARGETS, "cuda:0") == ["triton", "cublas", "cudnn", "tensorrt"]
    assert usable(TARGETS, "cuda:1") == ["cudnn", "tensorrt_rtx"]
    assert usable(["triton@cuda:11"], "cuda:1") == []


class Doctor:
    """Stands in for `collage doctor`, whose answer it writes where it would."""

    def __init__(self, targets: dict[str, list[str]], unusable: dict[str, str]) -> None:
        self.toolchains = [
            {"name": name, "targets": targets.get(name, []), "unusable": unusable.get(name, "")}
            for name in sorted({*targets, *unusable})
        ]

    def __call__(self, work: Path, deadline_s: float) -> list[str]:
        (work / "doctor.json").write_text(json.dumps({"toolchains": self.toolchains}), encoding="utf-8")
        return [target for each in self.toolchains for target in each["targets"]]


def ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, doctor: Doctor) -> list[str]:
    """Arguments for a run that finds a GPU, and whose races are only noted."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    monkeypatch.setattr(gpu, "gpu", lambda device: "NVIDIA H100")
    monkeypatch.setattr(gpu, "targets_here", doctor)
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "")  # so that what the run sets is undone
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "")
    return ["vit", "--batch", "1", "--work", str(tmp_path), "--results", str(tmp_path / "results.json")]


def test_without_a_list_it_takes_what_doctor_finds_usable_and_says_why_not_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    doctor = Doctor(
        {"triton": ["triton@cuda:0"], "cublas": ["cublas@cuda:0"], "onnxruntime": ["onnxruntime"]},
        {"cudnn": "there is no libcudnn.so.9"},
    )
    arguments = ready(tmp_path, monkeypatch, doctor)
    refused = tmp_path / "vit-b1-float32.onnx.refused.txt"
    refused.write_text("no memory", encoding="utf-8")
    monkeypatch.setattr(gpu, "made", lambda done, *rest: refused.read_text(encoding="utf-8"))

    assert gpu.main(arguments) == 1  # no plan ran
    [race] = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["races"]
    assert race["toolchains"] == "triton,cublas"
    assert {row["name"] for row in race["contenders"]} >= {"collage", "triton", "cublas", "tensorrt-engine"}
    assert race["unusable"] == {
        "cudnn": "there is no libcudnn.so.9",
        **dict.fromkeys(("cutlass", "tensorrt", "tensorrt_rtx"), "not installed"),
    }
    page = (tmp_path / "results.md").read_text(encoding="utf-8")
    assert "- cudnn: there is no libcudnn.so.9 (vit, batch 1, fp32)" in page


@pytest.mark.parametrize(
    ("doctor", "more", "said"),
    [
        (Doctor({}, {"triton": "no driver"}), [], "gpu: no toolchain is usable on cuda:0: triton: no driver; cublas: "),
        (Doctor({"triton": ["triton@cuda:0"]}, {}), ["--only", "cublas"], "gpu: no contender cublas; there are "),
    ],
)
def test_what_cannot_run_here_is_one_message_and_exit_status_2(
    doctor: Doctor,
    more: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert gpu.main([*ready(tmp_path, monkeypatch, doctor), *more]) == 2
    message = capsys.readouterr().err
    assert message.startswith(said)
    assert message.count("\n") == 1


def test_a_race_among_other_toolchains_does_not_stand_for_this_one(tmp_path: Path) -> None:
    """As when cuDNN is installed between two runs."""
    results = tmp_path / "results.json"
    old = {"key": CASE.key, "device": "NVIDIA H100", "toolchains": "triton,cublas"}
    results.write_text(json.dumps({"races": [old]}), encoding="utf-8")

    def races_of(toolchains: str) -> dict[str, Any]:
        options = gpu.parser().parse_args(["--results", str(results), "--toolchains", toolchains])
        races = gpu.Races(options, "NVIDIA H100", Clock(), Console(quiet=True))
        races._race = lambda case: {**old, "toolchains": toolchains, "contenders": []}  # type: ignore[method-assign]
        races._write = lambda: None  # type: ignore[method-assign]
        races.run([CASE])
        return races.done[CASE.key]

    assert races_of("triton,cublas") == old
    assert races_of("triton,cublas,cudnn") != old


def test_doctor_that_did_not_answer_says_nothing_of_toolchains(tmp_path: Path) -> None:
    assert unusable_here(tmp_path) == {}


def race(name: str, toolchains: str, precision: str = "fp32", **rounds_us: list[float]) -> dict[str, Any]:
    """A race in which contenders took these times; names of rows are written with `_and_` for `+`."""
    times = {contender.replace("_and_", "+"): each for contender, each in rounds_us.items()}
    return {
        "key": f"{name}-b1-{precision}",
        "name": name,
        "batch": 1,
        "precision": precision,
        "device": "GPU X",
        "date": "2026-11-21T12:00:00+00:00",
        "versions": {},
        "host": {"cpu": "Y", "cores": 1, "system": "Linux"},
        "protocol": {"rounds": 3, "seconds": 0.05, "warmup_s": 0.05},
        "toolchains": toolchains,
        "contenders": [
            {"name": contender, "kind": "outside", "comparable": True, "max_error": 0.0}
            | {"latency_ms": {"p50": sorted(each)[len(each) // 2] / 1e3}}
            for contender, each in times.items()
        ],
        "rounds_us": times,
        "best_single": None,
    }


VIT = race(
    "vit",
    "triton,cublas,cudnn",
    triton=[400.0, 800.0, 400.0],
    triton_and_cublas=[200.0, 400.0, 200.0],
    collage=[100.0] * 3,
)
BERT = race("bert", "triton,cublas", triton=[300.0] * 3, collage=[100.0] * 3)


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_table_has_a_column_for_each_step_and_compares_with_the_first_by_round() -> None:
    head, _, vit, bert, mean = map(cells, ablation_lines([VIT, BERT]))

    assert head == ["model", "batch", "precision", "triton", "+ cublas", "+ cudnn"]
    assert vit[:3] == ["vit", "1", "fp32"]
    assert vit[3:5] == ["0.400 ms", "0.200 ms, 2.00 (2.00 - 2.00)"]
    assert vit[5].startswith("0.100 ms, 4.00 (4.00 - 8.00)")
    assert bert[3:] == ["0.300 ms", "0.100 ms, 3.00 (3.00 - 3.00)", ""]
    assert mean[:3] == ["geometric mean", "", "fp32"]
    assert mean[4].startswith("2.45 (")  # of 2 and 3
    assert mean[4].endswith("2 of 2 races")
    assert mean[5].endswith("1 of 2 races")


def test_a_step_that_did_not_run_leaves_its_cell_empty_and_one_step_is_no_ablation() -> None:
    lost = race("vit", "triton,cublas,cudnn", triton=[4.0] * 3, collage=[1.0] * 3)
    only = race("gpt2", "triton,cublas", collage=[1.0] * 3)

    head, _, row = map(cells, ablation_lines([lost, only]))

    assert head == ["model", "batch", "precision", "triton", "+ cudnn"]
    assert row[3:] == ["0.004 ms", "0.001 ms, 4.00 (4.00 - 4.00)"]
    assert ablation_lines([only]) == []
    assert "One toolchain more in each column" not in markdown([only])
    assert "One toolchain more in each column" in markdown([VIT])
    assert len(HEADINGS) == 15  # the first table has what it had


def test_a_toolchain_that_makes_the_plan_slower_is_named() -> None:
    worse = race(
        "vit", "triton,cublas,cudnn", triton=[100.0] * 3, triton_and_cublas=[100.0] * 3, collage=[104.0, 105.0, 104.0]
    )

    assert faults(VIT) == []
    assert faults(worse) == ["with cudnn it may be slower than without: up to 1.05 of triton+cublas's time"]
