"""A whole `optimize` for a device and the CPU, in real processes: mixed, captured, packaged, run elsewhere."""

from __future__ import annotations

import dataclasses
import gc
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from collage.cli import main
from collage.commands.load import load
from collage.commands.optimize import optimize
from collage.options import OptimizeOptions
from collage.reference import discrepancy_of, evaluate
from collage.report.facts.device_facts import speed
from collage.report.facts.record import Record
from collage.runtime.session import Session
from collage_core.errors import DeviceLostError, DeviceMemoryError, KernelLoadError, KernelRunError
from collage_testing.kit.fake_time import BYTES_PER_US, COPY_US
from tests.from_source import ROOT
from tests.integration.device.models import layers
from tests.integration.device.toolchains import device, noted

X = np.random.default_rng(5).normal(size=(8, 16)).astype(np.float32)


def options(folder: Path, toolchains: str) -> OptimizeOptions:
    return OptimizeOptions(
        toolchains=toolchains,
        tuning_db=str(folder / "tuning.sqlite"),
        preset="quick",
        threads=1,
        warmup=1,
        iterations=3,
        duration_s=0.001,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("optimized")


@pytest.fixture(scope="module")
def record(folder: Path) -> Record:
    """Of the plan, which is saved as `layers.collage`."""
    made = optimize(layers(), options(folder, "far,near"))
    made.save(folder / "layers.collage")
    return made.record


@dataclasses.dataclass(frozen=True)
class Ran:
    """A package run in a process of its own.

    Attributes:
        facts: What it said of itself.
        lowered: What was lowered meanwhile.
        inputs: What it was run on.
        outputs: What it gave.
    """

    facts: Mapping[str, Any]
    lowered: list[str]
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]


@pytest.fixture(scope="module")
def ran(folder: Path, record: Record) -> Ran:
    return ran_elsewhere(folder)


def ran_elsewhere(folder: Path) -> Ran:
    """Runs `layers.collage` in a new process."""
    inputs: dict[str, Any] = {"x": X}
    np.savez(folder / "x.npz", **inputs)
    before = noted()
    command = [sys.executable, "-P", "-m", "tests.integration.device.elsewhere"]
    places = [str(folder / name) for name in ("layers.collage", "x.npz", "y.npz")]
    done = subprocess.run([*command, *places], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with np.load(folder / "y.npz") as outputs:
        return Ran(json.loads(done.stdout), noted()[len(before) :], inputs, dict(outputs))


def test_the_fastest_plan_is_on_the_device_but_for_what_the_device_has_not(record: Record) -> None:
    assert {node: region.target for region in record.regions for node in region.nodes} == {
        "matmul_0": "far@fake:0",
        "relu_0": "far@fake:0",
        "softmax_0": "near",
        "matmul_1": "far@fake:0",
        "add_0": "far@fake:0",
    }
    assert record.comparison.best_single == "near"
    assert record.comparison.speedup_ci95 is not None
    assert record.comparison.speedup_ci95[0] > 1
    assert record.max_error < 1e-6


def test_its_copies_are_those_it_needs(record: Record) -> None:
    [y] = (str(value.name) for value in layers().graph.outputs)

    assert {(copy.value, copy.source, copy.destination, copy.size_bytes) for copy in record.device_copies} == {
        ("x", "cpu", "fake:0", 512),
        ("relu_0", "fake:0", "cpu", 512),
        ("softmax_0", "cpu", "fake:0", 512),
        (y, "fake:0", "cpu", 512),
    }


def test_what_a_run_launches_in_a_graph_has_no_time_of_its_own(record: Record) -> None:
    timed = {region.target for region in record.regions if region.measured_us}

    assert timed == {"near"}
    assert {region.target for region in record.regions} == {"near", "far@fake:0"}


def test_in_another_process_its_stretches_are_captured(ran: Ran) -> None:
    assert ran.facts["launches"] == [["fake:0", "graph", 2, ""]] * 2


@pytest.mark.guards("a package of kernels on a device, in a new process")
def test_in_another_process_nothing_is_compiled(ran: Ran) -> None:
    assert ran.lowered == []
    assert ran.facts["substitutes"] == 0


def test_in_another_process_it_gives_the_reference_s_numbers(ran: Ran) -> None:
    expected = evaluate(layers(), ran.inputs).values

    for name, value in ran.outputs.items():
        assert discrepancy_of(value, expected[name]).error < 1e-6


def test_what_the_device_takes_was_measured_where_kernels_are(record: Record) -> None:
    [facts] = record.devices

    assert (facts.name, facts.assumed) == ("fake:0", "")
    declared = speed(COPY_US, BYTES_PER_US)
    for found in (facts.to_device, facts.from_device):
        assert found.latency_us == pytest.approx(declared.latency_us, rel=1e-3)
        assert found.gb_per_s == pytest.approx(declared.gb_per_s, rel=1e-3)
    # of what comes to the host the wait is part of the cost
    bytes_us = 512 / BYTES_PER_US
    for copy in record.device_copies:
        wait_us = facts.wait_us if copy.destination == "cpu" else 0.0
        assert copy.cost_us == pytest.approx(COPY_US + bytes_us + wait_us, rel=1e-2)


def test_the_record_counts_what_a_run_has_the_device_do(record: Record) -> None:
    work = record.device_work

    assert (work.graph_launches, work.eager_launches, work.copies, work.synchronisations) == (2, 0, 4, 2)
    assert [(each.mode, each.kernels, each.reason) for each in work.launches] == [("graph", 2, "")] * 2


@pytest.mark.slow
def test_a_second_run_over_the_database_lowers_no_candidate_and_decides_the_same(folder: Path, record: Record) -> None:
    again = optimize(layers(), options(folder, "far,near")).record

    assert again.search.measured == 0
    assert again.regions == record.regions
    assert again.device_copies == record.device_copies
    assert again.devices == record.devices  # kept: waits by the host's clock are not twice the same


@pytest.mark.gpu("cupy")
def test_on_a_gpu_a_plan_is_made_captured_and_run_elsewhere(tmp_path: Path) -> None:
    made = optimize(layers(), options(tmp_path, "cublas,triton,reference"))
    made.save(tmp_path / "layers.collage")
    ran = ran_elsewhere(tmp_path)

    assert any(region.target.endswith("@cuda:0") for region in made.record.regions), made.record.refusals
    assert made.record.max_error < 1e-3
    assert {(device, mode) for device, mode, _, _ in ran.facts["launches"]} == {("cuda:0", "graph")}
    assert ran.facts["substitutes"] == 0
    assert "triton" not in ran.facts["modules"]
    expected = evaluate(layers(), ran.inputs).values
    for name, value in ran.outputs.items():
        assert discrepancy_of(value, expected[name]).error < 1e-3


# What a run does without a device that is well


def session_of(folder: Path) -> Session:
    return load(folder / "layers.collage")


def run_thrice(session: Session) -> None:
    """To warm up, to capture, to replay."""
    for _ in range(3):
        session.run(None, {"x": X})


@pytest.mark.guards(
    "a device is lost while a package is loaded, or at any moment of its runs",
    "one error, which names device, step and what to do; nothing falls back by itself, since a plan for "
    "the CPU is another plan, with other numbers and another speed: `optimize --exclude` makes it",
    area="devices",
)
@pytest.mark.usefixtures("record")
def test_a_device_lost_at_any_moment_of_a_run_is_one_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = session_of(folder)
    session = whole.clone()
    before = device._asked
    run_thrice(session)
    operations = device._asked - before

    for moment in range(operations):
        session = whole.clone()
        monkeypatch.setattr(device, "lost_after", device._asked + moment)
        with pytest.raises(KernelRunError, match="DeviceLostError: device fake:0: it does not answer any more") as seen:
            run_thrice(session)
        monkeypatch.setattr(device, "lost_after", None)
        assert "start it again" in str(seen.value)
        assert "--exclude host" not in str(seen.value)
    assert operations > 20


@pytest.mark.guards("a device is lost while a package is loaded, or at any moment of its runs")
@pytest.mark.usefixtures("record")
def test_a_device_lost_while_a_package_is_loaded_is_one_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = device._asked
    session_of(folder)
    operations = device._asked - before

    for moment in range(operations):
        monkeypatch.setattr(device, "lost_after", device._asked + moment)
        with pytest.raises((KernelLoadError, DeviceLostError), match="it does not answer any more"):
            session_of(folder)
    assert operations > 3


@pytest.mark.guards(
    "a package does not fit on the device",
    "one error with what was asked for and what was free; nothing is lowered again for it",
    area="devices",
)
@pytest.mark.usefixtures("record")
@pytest.mark.parametrize("room", [0, 1500, 2500])
def test_a_package_that_does_not_fit_on_the_device_says_so_and_lowers_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    gc.collect()  # what earlier sessions held
    before = noted()
    monkeypatch.setattr(device, "memory_bytes", device.allocated + room)

    with pytest.raises((KernelLoadError, DeviceMemoryError), match=r"bytes were asked for, \d+ of \d+ are free"):
        session_of(folder)

    assert noted() == before


@pytest.mark.guards("a device is lost while a package is loaded, or at any moment of its runs")
@pytest.mark.usefixtures("record")
@pytest.mark.parametrize(("broken", "value"), [("lost_after", 0), ("memory_bytes", 0)])
def test_the_command_ends_with_one_message(
    folder: Path, monkeypatch: pytest.MonkeyPatch, broken: str, value: int
) -> None:
    monkeypatch.setattr(device, broken, value)

    result = CliRunner().invoke(main, ["run", str(folder / "layers.collage")])

    assert result.exit_code == 1
    [message] = [line for line in result.stderr.splitlines() if line]
    assert message.startswith("Error: ")
    assert "device fake:0: " in message
    assert "itself failed" not in message
