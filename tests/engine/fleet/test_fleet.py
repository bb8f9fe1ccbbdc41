"""Who measures for this machine: those of its kind, with what is installed here; and how many at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from collage.fleet import fleet
from collage.fleet.describing import why_not
from collage.fleet.fleet import Fleet
from collage.fleet.jobs import AskDescription, AskInterference, Description, Interference
from collage.measure.wire.blobs import BlobStore
from collage.measure.worker.judge_version import JUDGE
from collage_core.contract import Target
from collage_core.errors import RunnerError
from collage_testing.asking import HOST as ONE_CORE
from tests.engine.fleet.fake_runner import FakeRunner

HOST = dataclasses.replace(ONE_CORE, physical_cores=2)
TARGET = Target(toolchain="t", fingerprint="t 1")
PLUGINS = {"t": "collage-t 1"}
SAME = Description(
    host=HOST, leased=HOST, boot="one", judge=JUDGE, targets={"t": (TARGET,)}, plugins=PLUGINS, unusable={}
)
OTHERS: Mapping[str, tuple[Description, str]] = {
    "cpu": (
        dataclasses.replace(SAME, host=dataclasses.replace(HOST, cpu="another")),
        "it is another kind of machine (Mock mock/another/2c/e3b0c442)",
    ),
    "judge": (
        dataclasses.replace(SAME, judge=JUDGE + 1),
        f"its Collage judges kernels by version {JUDGE + 1}, this one by {JUDGE}",
    ),
    "library": (
        dataclasses.replace(SAME, targets={"t": (dataclasses.replace(TARGET, fingerprint="t 2"),)}),
        "t is t 1 here, there is t 2 there",
    ),
    "plugin": (
        dataclasses.replace(SAME, plugins={"t": "collage-t 2"}),
        "its plugin is collage-t 2, here collage-t 1",
    ),
    "unusable": (
        dataclasses.replace(SAME, targets={}, unusable={"t": "it needs AVX"}),
        "t is unusable there: it needs AVX",
    ),
    "missing": (dataclasses.replace(SAME, targets={}, plugins={}), "t is unusable there: it is not installed"),
}


def serving(descriptions: Mapping[str, Description], slower: float = 1.0) -> Any:
    alone = iter([False, False, True] * 6)

    def serve(host: str, ask: Any) -> Any:
        if isinstance(ask, AskDescription):
            return descriptions[host]
        assert isinstance(ask, AskInterference)
        took = 1.0 if next(alone) else slower
        return Interference(runs=tuple((number * took, took) for number in range(20)))

    return serve


def opened(
    monkeypatch: pytest.MonkeyPatch, folder: Path, runner: FakeRunner, split: bool | None = None
) -> tuple[int, tuple[str, ...]]:
    """How many are measured at once, and what is said."""
    monkeypatch.setattr(fleet, "open_runner", lambda name: runner)
    with Fleet.open(
        "fake", host=HOST, threads=1, targets=[TARGET], plugins=PLUGINS, store=BlobStore(folder), split=split
    ) as found:
        assert not runner.closed
        return found.measurer.width, found.notes


def test_a_machine_like_this_one_measures_for_it() -> None:
    assert why_not(SAME, HOST, [TARGET], PLUGINS) == ""


@pytest.mark.parametrize("name", OTHERS)
def test_another_does_not_and_it_is_said_why(name: str) -> None:
    description, reason = OTHERS[name]

    assert why_not(description, HOST, [TARGET], PLUGINS) == reason


def test_those_that_cannot_are_left_out_and_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    other, reason = OTHERS["library"]
    third = dataclasses.replace(SAME, boot="three")
    runner = FakeRunner(["a", "b", "c"], serving({"a": SAME, "b": other, "c": third}))

    width, notes = opened(monkeypatch, tmp_path, runner)

    assert width == 2
    assert notes == (f"b of fake takes no part: {reason}",)
    assert runner.closed


def test_without_any_it_is_an_error_with_all_reasons(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    runner = FakeRunner(["a", "b"], serving({"a": OTHERS["library"][0], "b": OTHERS["cpu"][0]}))

    with pytest.raises(RunnerError, match=r"a of fake takes no part: .*; b of fake takes no part: "):
        opened(monkeypatch, tmp_path, runner)
    assert runner.closed


def test_a_machine_without_enough_cores_takes_no_part(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    runner = FakeRunner(["a"], serving({"a": SAME}), cores=0)

    with pytest.raises(RunnerError, match="it has 0 cores and 0 devices, fewer than kernels need"):
        opened(monkeypatch, tmp_path, runner)


@pytest.mark.parametrize(("slower", "width"), [(1.0, 2), (1.02, 2), (1.2, 1)])
def test_a_machine_in_two_parts_is_used_at_once_if_they_do_not_slow_each_other(
    slower: float, width: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    runner = FakeRunner(["a", "b"], serving({"a": SAME, "b": SAME}, slower))

    found, notes = opened(monkeypatch, tmp_path, runner)

    assert found == width
    assert bool(notes) == (width == 1)
    assert all("2 at once would slow each other (1.20 of the time alone" in note for note in notes)


@pytest.mark.parametrize(("split", "width"), [(True, 2), (False, 1)])
def test_the_user_may_decide_that(split: bool, width: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    runner = FakeRunner(["a"], serving({"a": SAME}, 1.5), cores=2, at_once=2)

    assert opened(monkeypatch, tmp_path, runner, split) == (width, ())


def test_leases_whose_slowdown_cannot_be_told_are_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def serve(host: str, ask: Any) -> Any:
        return SAME if isinstance(ask, AskDescription) else Interference(runs=((0.0, 1.0),))

    width, [note] = opened(monkeypatch, tmp_path, FakeRunner(["a", "b"], serve))

    assert width == 1
    assert "it cannot be told whether 2 at once slow each other" in note


@pytest.mark.parametrize(("cores", "at_once", "width"), [(8, 8, 2), (8, 1, 1), (1, 8, 1)])
def test_no_more_are_used_than_the_machine_has_cores_and_the_runner_runs_at_once(
    cores: int, at_once: int, width: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    runner = FakeRunner(["a"], serving({"a": SAME}), cores=cores, at_once=at_once)

    assert opened(monkeypatch, tmp_path, runner, split=True)[0] == width


def test_targets_on_a_device_have_a_lease_for_each_device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    target = dataclasses.replace(TARGET, device="cuda:0")
    description = dataclasses.replace(SAME, targets={"t": (target,)})
    runner = FakeRunner(["a"], serving({"a": description}), cores=2, at_once=2, devices=1)
    monkeypatch.setattr(fleet, "open_runner", lambda name: runner)

    with Fleet.open(
        "fake", host=HOST, threads=1, targets=[target], plugins=PLUGINS, store=BlobStore(tmp_path), split=True
    ) as found:
        assert found.measurer.width == 1
