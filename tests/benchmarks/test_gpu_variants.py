"""`benchmarks/gpu_variants.py`: its code over fake and emulated devices, and with `-m gpu` on a real one in small."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks import gpu_variants, variant_shapes
from benchmarks.gpu_steps import Clock
from benchmarks.gpu_variants_page import beaten, describe, markdown, shortcomings
from benchmarks.variant_race import verdict, whole_of
from benchmarks.variant_shapes import Shape, layer_of
from collage.devices.opening import Devices
from collage.devices.this_host import this_host
from collage_core.contract import (
    Artifact,
    Device,
    Host,
    Kernel,
    KernelFunction,
    Protocol,
    RunContext,
    Target,
    Unsupported,
)
from collage_core.entry_points import PluginFailure
from collage_core.hookspecs import hookimpl
from collage_core.registry import Registry, Toolchain
from collage_testing.kit import ExecutingMock, FakeDevice
from collage_testing.kit.fake_kernel import load_on_fake
from tests.integration.device import emulations

SHAPES = (
    Shape(model="bert", layer="query", operator="MatMul", reads=(2, 16, 32), weight=(32, 16)),
    Shape(
        model="resnet50",
        layer="n7",
        operator="Conv",
        reads=(1, 8, 6, 6),
        weight=(8, 8, 3, 3),
        strides=(1, 1),
        pads=(1, 1),
        relu=True,
    ),
)
H100 = Device(name="cuda:0", model="NVIDIA H100", compute_capability="9.0", driver="580.65.06", memory_bytes=80 << 30)
HOST = Host(system="", cpu="", physical_cores=1, cpu_flags=frozenset(), memory_bytes=1, devices=(H100,))


class Menu(ExecutingMock):
    """Has the variants of a menu, in its order; a negative time is a kernel that gives wrong numbers.

    Attributes:
        menu: What each takes on the device's own clock, in microseconds.
    """

    def __init__(self, name: str, device: FakeDevice, menu: Mapping[str, float], refuses: str = "") -> None:
        target = Target(toolchain=name, device=device.name, fingerprint=f"{name} 1")
        super().__init__(name, costs_us={}, targets=[target])
        self.menu, self.refuses = menu, refuses

    @hookimpl
    def collage_lower(self, target: Target, function: KernelFunction) -> Iterator[Artifact] | Unsupported:
        if self.refuses in [node.op_type for node in function.model.graph]:
            return Unsupported(f"no {self.refuses}")
        return self._variants(target, function)

    def _variants(self, target: Target, function: KernelFunction) -> Iterator[Artifact]:
        lowered = super().collage_lower(target, function)
        assert not isinstance(lowered, Unsupported)
        for artifact in lowered:
            for name, us in self.menu.items():
                yield dataclasses.replace(artifact, variant=name, capturable=True, metadata={"us": us})

    @hookimpl
    def collage_load(self, target: Target, artifact: Artifact, run: RunContext) -> Kernel:
        us = float(str(artifact.metadata["us"]))
        if us < 0:
            raise RuntimeError("no such kernel")
        return load_on_fake(artifact, run, us=us)


def fake(device: FakeDevice, *toolchains: Menu) -> dict[str, Any]:
    """What `main` is given in place of this machine."""
    return {
        "registry": Registry.of(*(Toolchain(each.name, each) for each in toolchains)),
        "devices": Devices(device.open),
        "shapes": SHAPES,
    }


@pytest.fixture
def with_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine says that it has one."""
    monkeypatch.setattr(gpu_variants, "this_host", lambda: HOST)


def run(results: Path, machine: Mapping[str, Any], *arguments: str) -> tuple[int, dict[str, Any]]:
    common = ["--results", str(results), "--rounds", "3", "--dtype", "float32", "--preset", "quick"]
    status = gpu_variants.main([*common, *arguments], **machine)
    return status, json.loads(results.read_text(encoding="utf-8"))


@pytest.mark.usefixtures("with_gpu")
def test_the_faster_variant_is_chosen_and_timed_again_beside_the_first(tmp_path: Path) -> None:
    device = FakeDevice("cuda:0")
    slow = Menu("slow", device, {"first": 90.0, "best": 60.0})
    fast = Menu("fast", device, {"first": 40.0, "other": 50.0, "best": 20.0}, refuses="Conv")

    status, report = run(tmp_path / "r.json", fake(device, slow, fast), "--toolchains", "fast,slow,cutlass")

    assert status == 0
    product, convolution = report["layers"]
    rows = {row["toolchain"]: row for row in product["toolchains"]}
    assert {name: (row["first"], row["chosen"], row["tried"]) for name, row in rows.items()} == {
        "fast": ("first", "best", 3),
        "slow": ("first", "best", 2),
    }
    assert rows["fast"]["median_us"] == pytest.approx({"first": 40.0, "chosen": 20.0})  # the device's own clock
    assert (rows["fast"]["ratio"], verdict(rows["fast"])) == (pytest.approx(0.5), "better")
    assert {len(times) for row in rows.values() for times in row["rounds_us"].values()} == {3}
    assert convolution["toolchains"][0] == {"toolchain": "fast", "target": "fast@cuda:0", "failed": "no Conv"}
    page = (tmp_path / "r.md").read_text(encoding="utf-8")
    assert "On 2 of 2 layers the choice of the fastest toolchain beats" in page
    assert "no choice is worse" in page
    assert "| fast | 1 of 2 | 1 | 0 | 0 | 0 |" in page
    assert "- fast: no Conv (resnet50 n7 1x8x6x6)" in page
    assert "- cutlass: not installed" in page


@pytest.mark.usefixtures("with_gpu")
def test_only_so_many_variants_are_tried_and_a_first_that_stays_the_best_beats_nothing(tmp_path: Path) -> None:
    device = FakeDevice("cuda:0")
    menu = Menu("menu", device, {"first": 30.0, "slower": 50.0, "never": 1.0})

    status, report = run(tmp_path / "r.json", fake(device, menu), "--toolchains", "menu", "--variants", "2")

    assert status == 1
    row = report["layers"][0]["toolchains"][0]
    assert (row["chosen"], row["tried"], verdict(row), row["ratio"]) == ("first", 2, "same", 1.0)
    assert shortcomings(report) == ["The choice beats the library's first on 0 of 2 layers only."]


@pytest.mark.usefixtures("with_gpu")
def test_a_first_choice_that_does_not_run_is_said_and_not_counted(tmp_path: Path) -> None:
    device = FakeDevice("cuda:0")
    menu = Menu("menu", device, {"broken": -1.0, "whole": 30.0})

    status, report = run(tmp_path / "r.json", fake(device, menu), "--toolchains", "menu")

    assert status == 1
    [row] = report["layers"][0]["toolchains"]
    assert row["failed"].startswith("its first choice broken does not run (")
    assert "no such kernel" in row["failed"]


@pytest.mark.usefixtures("with_gpu")
def test_a_run_resumes_and_goes_on_with_what_was_made_alike_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    device = FakeDevice("cuda:0")
    machine = fake(device, Menu("menu", device, {"first": 30.0, "best": 20.0}))
    _, first = run(tmp_path / "r.json", machine, "--toolchains", "menu", "--only", "query")
    assert [layer["key"] for layer in first["layers"]] == ["bert query 2x16x32"]

    status, both = run(tmp_path / "r.json", machine, "--toolchains", "menu")
    assert status == 0
    assert both["layers"][0] == first["layers"][0]
    assert len(both["layers"]) == 2

    status, _ = run(tmp_path / "r.json", machine, "--toolchains", "menu", "--rounds", "4")
    assert status == 2
    assert "r.json has another settings" in capsys.readouterr().err


@pytest.mark.usefixtures("with_gpu")
def test_when_time_is_up_nothing_is_begun(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    device = FakeDevice("cuda:0")
    machine = fake(device, Menu("menu", device, {"first": 30.0}))
    arguments = ["--results", str(tmp_path / "r.json"), "--toolchains", "menu", "--minutes", "0.1"]

    assert gpu_variants.main(arguments, **machine) == 3
    assert "Time is up before bert query" in capsys.readouterr().out
    assert not (tmp_path / "r.json").exists()
    assert Clock().left(1.0, "") == 1.0


@pytest.mark.usefixtures("with_gpu")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--toolchains", "cutlass"], "no toolchain is usable on cuda:0: cutlass: not installed"),
        (["--toolchains", "broken"], "no toolchain is usable on cuda:0: broken: it cannot be imported"),
        (
            ["--toolchains", "menu", "--device", "cuda:1"],
            "no toolchain is usable on cuda:1: menu: it has no target on cuda:1",
        ),
        (["--toolchains", "menu", "--only", "alexnet"], "--only alexnet is part of no layer's name"),
        (["--toolchains", "menu", "--variants", "0"], "--variants and --rounds are 1 or more"),
    ],
)
def test_misuse_is_one_message_and_exit_status_2(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    device = FakeDevice("cuda:0")
    machine = fake(device, Menu("menu", device, {"first": 30.0}))
    failure = PluginFailure(name="broken", distribution="", reason="it cannot be imported")
    machine["registry"] = dataclasses.replace(machine["registry"], failures=(failure,))

    assert gpu_variants.main(["--results", str(tmp_path / "r.json"), *arguments], **machine) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"gpu_variants: {said}")
    assert error.count("\n") == 1


def test_without_a_gpu_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if this_host().device("cuda:0") is not None:
        pytest.skip("there is one")

    assert gpu_variants.main(["--results", str(tmp_path / "r.json")]) == 2
    assert "nvidia-smi" in capsys.readouterr().err or "no NVIDIA GPU" in capsys.readouterr().err


@pytest.fixture
def emulated(with_gpu: None) -> Iterator[dict[str, Any]]:
    """NVIDIA's toolchains over emulations of their libraries, and two layers so small that these are quick."""
    device = FakeDevice("cuda:0")
    with emulations.plugins(device) as plugins:
        yield {
            "registry": Registry.of(*(Toolchain(name, plugin) for name, plugin in plugins.items())),
            "devices": Devices(device.open),
            "shapes": SHAPES,
            "turn": Protocol(
                warmup_runs=1, warmup_s=0.0, min_samples=1, max_samples=1, duration_s=0.0, min_sample_us=1e-3
            ),
        }


@pytest.fixture
def real() -> dict[str, Any]:
    return {"registry": Registry.discover(), "devices": None, "shapes": variant_shapes.SHAPES}


@pytest.mark.parametrize(
    ("machine", "more"),
    [
        pytest.param("emulated", ["--variants", "2"], marks=[pytest.mark.plugins, pytest.mark.slow], id="emulated"),
        pytest.param(
            "real", ["--variants", "8", "--only", "bert pooler,resnet50 n7"], marks=pytest.mark.gpu("cupy"), id="real"
        ),
    ],
)
def test_every_usable_toolchain_chooses_for_a_product_and_a_convolution(
    machine: str, more: list[str], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    status, report = run(tmp_path / "r.json", request.getfixturevalue(machine), *more, "--dtype", "float16")

    assert status in (0, 1)
    product, convolution = report["layers"]
    taken = {row["toolchain"]: row for row in product["toolchains"] if "failed" not in row}
    assert set(taken) == set(report["toolchains"]), product
    filtering = {row["toolchain"]: row for row in convolution["toolchains"] if "failed" not in row}
    assert set(filtering) == set(report["toolchains"]) - {"cublas"}, convolution
    for row in (*taken.values(), *filtering.values()):
        assert min(row["median_us"].values()) > 0
        assert row["ci95"][0] <= row["ratio"] <= row["ci95"][1]
        assert row["tried"] >= 1


def row(name: str, chosen: float, low: float, high: float, *, same: bool = False) -> dict[str, Any]:
    return {
        "toolchain": name,
        "first": "a",
        "chosen": "a" if same else "b",
        "tried": 4,
        "median_us": {"first": 10.0, "chosen": chosen},
        "ratio": chosen / 10.0,
        "ci95": [low, high],
    }


def report_of(*layers: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "date": "2026-11-21T12:00:00+00:00",
        "versions": {},
        "host": {"cpu": "Y", "cores": 1, "system": "Linux"},
        "device": "GPU X",
        "dtype": "float16",
        "toolchains": ["x", "y"],
        "unusable": {},
        "settings": {"variants": 4, "rounds": 3},
        "layers": [
            {"key": f"layer {number}", "about": "MatMul", "gflop": 1.0, "toolchains": rows}
            for number, rows in enumerate(layers)
        ],
    }


def test_what_counts_is_the_choice_of_the_toolchain_whose_kernel_would_be_used() -> None:
    wins_where_it_matters = [row("x", 8.0, 0.75, 0.85), row("y", 9.0, 0.99, 1.0, same=True)]
    wins_elsewhere = [row("x", 8.0, 0.75, 0.85), row("y", 5.0, 1.0, 1.0, same=True)]
    report = report_of(wins_where_it_matters, wins_elsewhere)

    assert beaten(report["layers"]) == ["layer 0"]
    assert shortcomings(report) == []  # half of them
    assert shortcomings(report_of(wins_elsewhere))


def test_a_choice_is_worse_only_if_its_interval_says_so_and_then_any_toolchains_is() -> None:
    certain = report_of([row("x", 8.0, 0.7, 0.9), row("y", 10.5, 1.02, 1.08)])
    open_still = report_of([row("x", 8.0, 0.7, 0.9), row("y", 10.5, 0.99, 1.2)])

    [said] = shortcomings(certain)
    assert said.startswith("layer 0: the choice is worse. y: b, 10.50 us, of 4; a, the first, 10.00 us; ratio 1.050")
    assert shortcomings(open_still) == []
    assert "1 choices are worse" in markdown(certain)
    assert "| layer 0 | MatMul | 1.00 | **8.00**, 10.00 (0.80, 0.70 - 0.90) |" in markdown(certain)
    assert describe({"toolchain": "x", "failed": "no"}) == "x: no"


@pytest.mark.slow
def test_every_layer_of_the_list_is_one_kernel_of_each_toolchain_that_multiplies_so(emulated: dict[str, Any]) -> None:
    """In float16. cuBLASLt has no convolutions; all else is taken as a whole by all."""
    names = ["cublas", "cudnn", "triton"]
    entries, reasons = gpu_variants.usable(emulated["registry"], HOST, "cuda:0", names)
    assert reasons == {}
    for shape in variant_shapes.SHAPES:
        layer = layer_of(shape, "float16")
        taken = [entry.toolchain.name for entry in entries if not isinstance(whole_of(layer, entry), str)]
        assert taken == (names if shape.operator == "MatMul" else names[1:]), shape.key
