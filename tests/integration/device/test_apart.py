"""Toolchains that cannot be in one process: the best plan without one or the other, and why."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from collage.commands.doctor import doctor
from collage.commands.optimize import optimize
from collage.report.facts.record import Record
from collage.report.text.explanation import explain
from collage_core.errors import NoCoverError
from collage_core.registry import Registry
from tests.integration.device import toolchains
from tests.integration.device.models import layers
from tests.integration.device.test_optimize import options, ran_elsewhere

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.guards(
        "two toolchains load different cuDNNs, cuBLASes, TensorRTs or CUDA runtimes",
        "`doctor` names both files and the remedy; no plan uses both; each is tried with the others; the "
        "record says what each came to",
        area="devices",
    ),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("apart")


@pytest.fixture(scope="module")
def record(folder: Path) -> Record:
    """Left is quick at products and ReLU, right at ReLU and sums, and near is slow at each of them."""
    made = optimize(layers(), options(folder, "left,right,near"))
    made.save(folder / "layers.collage")
    return made.record


@pytest.mark.slow
def test_the_plan_is_the_best_of_those_without_one_or_the_other(record: Record) -> None:
    """With left what remains takes near one wait, with right two, with near alone four; with both it took none."""
    assert {node: region.target for region in record.regions for node in region.nodes} == {
        "matmul_0": "left",
        "relu_0": "left",
        "softmax_0": "near",
        "matmul_1": "left",
        "add_0": "near",
    }


@pytest.mark.slow
def test_the_record_and_the_explanation_tell_what_each_set_came_to(record: Record) -> None:
    first, second = record.search.compatible_sets

    assert (first.targets, first.used) == (("left", "near"), ("left", "near"))
    assert (second.targets, second.used) == (("near", "right"), ("near", "right"))
    assert first.predicted_ms is not None
    assert second.predicted_ms is not None
    assert 0 < first.predicted_ms < second.predicted_ms  # it waits once and twice, at whatever speed is usual here
    text = " ".join(explain(record).split())
    assert "some targets exclude each other; the best plan of {left, near}: " in text
    assert "it cannot share a plan with left" in text


@pytest.mark.slow
def test_the_best_plan_of_each_set_ran_end_to_end(record: Record) -> None:
    raced = {each.toolchains for each in record.comparison.contenders if each.kind == "mixed" and each.latency_ms}

    assert ("left", "near") in raced


@pytest.mark.slow
def test_in_another_process_the_plan_runs(folder: Path, record: Record) -> None:
    assert ran_elsewhere(folder).facts["substitutes"] == 0
    assert {region.toolchain for region in record.regions} == {"left", "near"}


def test_pins_to_both_of_them_are_refused_and_it_is_said_why(tmp_path: Path) -> None:
    wanted = options(tmp_path, "left,right,near")
    pins = ("matmul_*=left", "add_0=right")

    with pytest.raises(NoCoverError, match="left and right exclude each other, so no plan uses both"):
        optimize(layers(), dataclasses.replace(wanted, pins=pins))


def test_doctor_finds_two_of_a_library_in_the_processes_that_loaded_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("left", "right"):
        path = tmp_path / name / "libcudnn.so.9"
        path.parent.mkdir()
        path.write_text(name, encoding="utf-8")
    monkeypatch.setenv(toolchains.LIBRARIES, str(tmp_path))
    found = Registry.discover()
    registry = Registry({name: found.toolchains[name] for name in ("left", "right")})

    [clash] = [clash for clash in doctor(registry).clashes if clash.apart]

    assert clash.between == ("left", "right")
    assert clash.files == tuple(str(tmp_path / name / "libcudnn.so.9") for name in ("left", "right"))
    (tmp_path / "right" / "libcudnn.so.9").write_text("left", encoding="utf-8")
    assert not [clash for clash in doctor(registry).clashes if clash.apart]
