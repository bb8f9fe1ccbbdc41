"""Many jobs on machines of several kinds: each on one of its own kind, once, whatever is lost."""

from __future__ import annotations

import collections
import threading
from typing import Any

import pytest

from collage.fleet.batch import Done, Task, run_all
from collage.fleet.jobs import AskDescription, AskInterference, Interference
from collage_core.contract import RunnerHost
from collage_core.errors import LostJobError
from tests.engine.fleet.fake_runner import FakeRunner

KINDS = {"big": ("a", "b"), "small": ("c",)}
HOSTS = {kind: [RunnerHost(name=name, cores=1) for name in names] for kind, names in KINDS.items()}


def tasks(counts: dict[str, int]) -> list[Task]:
    return [
        Task(name=f"{kind} {number}", kind=kind, ask=AskInterference(threads=number, duration_s=1.0), blobs={})
        for kind, count in counts.items()
        for number in range(count)
    ]


def answered(host: str, ask: Any) -> Interference:
    return Interference(runs=((float(ask.threads), 1.0),))


def run(runner: FakeRunner, what: list[Task], told: list[str] | None = None) -> list[Done]:
    return list(run_all(runner, what, HOSTS, ([] if told is None else told).append))


def test_each_runs_once_on_a_machine_of_its_kind() -> None:
    lock, places = threading.Lock(), collections.defaultdict(list)

    def serve(host: str, ask: Any) -> Interference:
        with lock:
            places[host].append(ask.threads)
        return answered(host, ask)

    what = tasks({"big": 7, "small": 3})
    done = run(FakeRunner("abc", serve), what)

    assert sorted(each.task.name for each in done) == sorted(task.name for task in what)
    assert all(each.answer.runs[0][0] == each.task.ask.threads for each in done)
    assert sorted(places["c"]) == [0, 1, 2]
    assert sorted(places["a"] + places["b"]) == list(range(7))


def test_machines_of_a_kind_work_at_once() -> None:
    together = threading.Barrier(2, timeout=60)

    def serve(host: str, ask: Any) -> Interference:
        together.wait()
        return answered(host, ask)

    assert len(run(FakeRunner("abc", serve), tasks({"big": 4}))) == 4


def test_a_lost_job_runs_elsewhere() -> None:
    def serve(host: str, ask: Any) -> Interference:
        if host == "a":
            runner.names.remove("a")
            raise LostJobError("fake", "a", "the power is off")
        return answered(host, ask)

    runner, told = FakeRunner("abc", serve), list[str]()
    done = run(runner, tasks({"big": 5}), told)

    assert len(done) == 5
    assert not any(each.reason for each in done)
    assert any("the power is off" in line for line in told)


def test_what_loses_two_machines_is_given_up_and_the_rest_goes_on() -> None:
    def serve(host: str, ask: Any) -> Interference:
        if ask.threads == 1:
            raise LostJobError("fake", host, "its process was killed")
        return answered(host, ask)

    done = run(FakeRunner("abc", serve), tasks({"big": 4}))

    reasons = {each.task.name: each.reason for each in done}
    assert len(reasons) == 4
    assert "its process was killed" in reasons.pop("big 1")
    assert set(reasons.values()) == {""}


def test_what_is_left_without_machines_is_said() -> None:
    def serve(host: str, ask: Any) -> Interference:
        if host == "c":
            runner.names.remove("c")
            raise LostJobError("fake", "c", "the power is off")
        return answered(host, ask)

    runner = FakeRunner("abc", serve)
    done = run(runner, tasks({"big": 2, "small": 3}))

    reasons = collections.Counter(each.reason for each in done)
    assert reasons == {"": 2, "no machine of this kind is left": 3}


def test_a_machine_that_says_nonsense_costs_its_job_only() -> None:
    def serve(host: str, ask: Any) -> Any:
        return AskDescription(toolchains=None) if ask.threads == 0 else answered(host, ask)

    done = run(FakeRunner("abc", serve), tasks({"small": 2}))

    assert sorted(type(each.answer).__name__ for each in done) == ["AskDescription", "Interference"]


@pytest.mark.parametrize("error", [KeyError("x"), OSError("disk")])
def test_a_runner_that_fails_costs_the_job(error: Exception) -> None:
    def serve(host: str, ask: Any) -> Any:
        if ask.threads == 0:
            raise error
        return answered(host, ask)

    done = run(FakeRunner("abc", serve), tasks({"small": 2}))

    assert sorted(bool(each.reason) for each in done) == [False, True]
