"""Candidates measured elsewhere: in as many leases as there are, and again where a machine is lost."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from collage.fleet.fleet_measurer import FleetMeasurer
from collage.fleet.jobs import AskDescription
from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.messages import AskMeasure
from collage.measure.wire.outcomes import Failed, Measured, Stage
from collage_core.contract import Target
from collage_core.errors import LostJobError, RunnerError
from collage_testing.kit.runners import sum_request
from tests.engine.fleet.fake_runner import FakeRunner

MEASURED = Measured(samples_us=(1.0,), warmup_runs=1, calls_per_sample=1)


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path)


@pytest.fixture
def ask(store: BlobStore) -> AskMeasure:
    return sum_request(Target(toolchain="t", fingerprint="1"), store)


def test_as_many_are_measured_at_once_as_there_are_leases(store: BlobStore, ask: AskMeasure) -> None:
    together = threading.Barrier(3, timeout=60)

    def serve(host: str, _: Any) -> Measured:
        together.wait()
        return MEASURED

    runner = FakeRunner(["a", "b"], serve)
    measurer = FleetMeasurer(runner, "fake", ["a", "a", "b"], 1, store)

    assert measurer.width == 3
    with ThreadPoolExecutor(6) as threads:
        assert list(threads.map(measurer.measure, [ask] * 6)) == [MEASURED] * 6
    assert sorted(runner.served) == ["a", "a", "a", "a", "b", "b"]


def test_a_machine_that_is_lost_has_its_work_done_elsewhere(store: BlobStore, ask: AskMeasure) -> None:
    def serve(host: str, _: Any) -> Measured:
        if host == "a":
            runner.names.remove("a")
            raise LostJobError("fake", "a", "the power is off")
        return MEASURED

    runner = FakeRunner(["a", "b"], serve)
    measurer = FleetMeasurer(runner, "fake", ["a", "b"], 1, store)

    assert [measurer.measure(ask) for _ in range(4)] == [MEASURED] * 4
    assert runner.served == ["b"] * 4
    assert measurer.losses == ["cannot use the runner 'fake': a job on a was lost: the power is off"]


def test_a_lease_of_a_machine_that_is_still_there_comes_back(store: BlobStore, ask: AskMeasure) -> None:
    failing = iter([True, False, False])

    def serve(host: str, _: Any) -> Measured:
        if next(failing):
            raise LostJobError("fake", host, "its process was killed")
        return MEASURED

    runner = FakeRunner(["a"], serve)
    measurer = FleetMeasurer(runner, "fake", ["a"], 1, store)

    assert [measurer.measure(ask) for _ in range(2)] == [MEASURED] * 2


def test_what_loses_each_machine_that_it_is_given_is_given_up_for_this_run(store: BlobStore, ask: AskMeasure) -> None:
    tried = []

    def serve(host: str, _: Any) -> Measured:
        tried.append(host)
        raise LostJobError("fake", host, "its process was killed")

    measurer = FleetMeasurer(FakeRunner(["a", "b"], serve), "fake", ["a", "b"], 1, store)
    found = measurer.measure(ask)

    assert isinstance(found, Failed)
    assert found.stage is Stage.START  # so that the next run tries it again
    assert "no machine measured it, 3 were tried; the last was" in found.reason
    assert "its process was killed" in found.reason
    assert len(tried) == 3


def test_without_machines_it_ends_with_what_happened(store: BlobStore, ask: AskMeasure) -> None:
    def serve(host: str, _: Any) -> Measured:
        runner.names.clear()
        raise LostJobError("fake", host, "the power is off")

    runner = FakeRunner(["a"], serve)
    measurer = FleetMeasurer(runner, "fake", ["a"], 1, store)

    with pytest.raises(RunnerError, match=r"no machine is left: .*the power is off"):
        measurer.measure(ask)
    with pytest.raises(RunnerError, match="no machine is left"):
        measurer.measure(ask)


def test_those_who_wait_for_the_last_machine_are_told_that_it_is_lost(store: BlobStore, ask: AskMeasure) -> None:
    waiting = threading.Event()

    def serve(host: str, _: Any) -> Measured:
        assert waiting.wait(60)
        runner.names.clear()
        raise LostJobError("fake", host, "the power is off")

    runner = FakeRunner(["a"], serve)
    measurer = FleetMeasurer(runner, "fake", ["a"], 1, store)
    with ThreadPoolExecutor(3) as threads:
        found = [threads.submit(measurer.measure, ask) for _ in range(3)]
        waiting.set()

    for each in found:
        with pytest.raises(RunnerError, match="no machine is left"):
            each.result()


def test_a_machine_that_answers_something_else_is_an_error(store: BlobStore, ask: AskMeasure) -> None:
    runner = FakeRunner(["a"], lambda host, _: AskDescription(toolchains=None))
    measurer = FleetMeasurer(runner, "fake", ["a"], 1, store)

    for _ in range(2):  # the lease was given back
        with pytest.raises(RunnerError, match="a answered with AskDescription"):
            measurer.measure(ask)


def test_a_machine_that_begins_nothing_has_its_work_done_elsewhere_and_is_given_up(
    store: BlobStore, ask: AskMeasure
) -> None:
    def serve(host: str, _: Any) -> Any:
        return Failed(stage=Stage.START, reason="no driver") if host == "a" else MEASURED

    runner = FakeRunner(["a", "b"], serve)
    measurer = FleetMeasurer(runner, "fake", ["a", "b"], 1, store)

    assert [measurer.measure(ask) for _ in range(10)] == [MEASURED] * 10
    assert runner.served.count("a") == 3
    assert measurer.losses == ["a is given up: it began none of 3 candidates: no driver"]


def test_the_only_machine_is_not_given_up_for_what_it_does_not_begin(store: BlobStore, ask: AskMeasure) -> None:
    runner = FakeRunner(["a"], lambda host, _: Failed(stage=Stage.START, reason="no driver"))
    measurer = FleetMeasurer(runner, "fake", ["a"], 1, store)

    for _ in range(3):
        found = measurer.measure(ask)
        assert isinstance(found, Failed)
        assert found.reason == "no machine measured it, 3 were tried; the last was a: no driver"
