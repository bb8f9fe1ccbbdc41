"""A process that is held to its limits, and ended, whatever it does."""

from __future__ import annotations

import itertools
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import collage
import collage_core
from collage.errors import WorkerError
from collage.measure.driver import child as module
from collage.measure.driver.child import ChildProcess

MIB = 1 << 20
Start = Callable[..., ChildProcess]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a process of a program."""
    started: list[ChildProcess] = []

    def start(program: str, **arguments: Any) -> ChildProcess:
        (tmp_path / "program.py").write_text(f"import os, subprocess, sys, time\n{program}\n", encoding="ascii")
        path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
        started.append(ChildProcess("it", "program", [], {"PYTHONPATH": path}, **arguments))
        return started[-1]

    yield start
    for child in started:
        child.kill()


def test_it_finds_the_collage_that_started_it_and_no_part_of_that_by_its_bare_name() -> None:
    roots = [Path(package.__path__[0]).parent for package in (collage, collage_core)]
    if any(root.name in ("site-packages", "dist-packages") for root in roots):
        pytest.skip("what is installed there is found anyway")

    first, second, *_ = module._environment()["PYTHONPATH"].split(os.pathsep)

    assert [Path(first), Path(second)] == roots


def test_idle_threads_of_numpy_do_not_spin_in_it_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENBLAS_THREAD_TIMEOUT", raising=False)

    assert module._environment()["OPENBLAS_THREAD_TIMEOUT"] == "18"


@pytest.mark.guards(
    "a worker prints without end",
    "what is kept of it stays small, also within a request; its last words are reported",
    area="toolchains",
)
def test_what_it_prints_without_end_fills_no_disk(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOG_LIMIT_BYTES", 1 * MIB)
    sizes = [0]
    look = ChildProcess._hold_to_limits

    def clock() -> float:
        """Passes the deadline once its words were cut off three times, and it has said more."""
        cuts = sum(after < before for before, after in itertools.pairwise(sizes))
        return float(cuts >= 3 and 0 < sizes[-1] <= MIB)

    def looked(child: ChildProcess, deadline: float) -> None:
        sizes.append(os.fstat(child._log.fileno()).st_size)
        look(child, deadline)

    monkeypatch.setattr(ChildProcess, "_hold_to_limits", looked)
    program = "while True:\n    os.write(2, bytes(100_000) + b'more words\\n')\n    time.sleep(0.005)"
    child = start(program, clock=clock)

    with pytest.raises(WorkerError, match=r"killed; its last words: .*more words"):
        child.receive(child.deadline(0.5))

    assert max(sizes) > MIB


@pytest.mark.guards(
    "processes that a worker started (compilers, linkers) take the memory",
    "they count towards the worker's limit",
    area="toolchains",
)
def test_what_it_started_counts_against_its_limit(start: Start) -> None:
    hoard = "held = bytearray(b'x' * (300 << 20)); import time; time.sleep(600)"
    child = start(f"subprocess.run([sys.executable, '-c', {hoard!r}])", memory_limit_bytes=200 * MIB)

    with pytest.raises(WorkerError, match="more than the 200 MiB it may"):
        child.receive(child.deadline(3600))

    assert not psutil.pid_exists(child.pid)


@pytest.mark.guards(
    "the process id of a dead worker was given to another process", "that process is sent no signal", area="toolchains"
)
def test_a_number_that_may_be_anothers_is_sent_no_signal(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    signalled: list[int] = []
    child = start("")
    while child.alive:  # it is waited for, so the system may give its number to another
        time.sleep(0.02)
    monkeypatch.setattr(os, "killpg", lambda pid, number: signalled.append(pid))

    assert child.kill()

    assert signalled == []


@pytest.mark.guards(
    "a worker does not end although it was killed",
    "left behind after 10 s, and named; the run goes on",
    area="toolchains",
)
def test_one_that_cannot_be_ended_is_left_and_named(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that waits for a device in the kernel; here nobody is killed."""
    passing = itertools.count()
    child = start("time.sleep(600)", clock=lambda: float(next(passing)))
    with monkeypatch.context() as patch:
        patch.setattr(module, "_END_S", 0.2)
        patch.setattr(os, "killpg", lambda *_: None)
        patch.setattr(subprocess.Popen, "kill", lambda _: None)
        patch.setattr(module, "_marked", lambda _: [])

        with pytest.raises(WorkerError, match=rf"killed, and has not ended 0\.2 s later \(process {child.pid}\)"):
            child.receive(child.deadline(0))

    child._process.kill()
    child._process.wait()
