"""A process that prepares and evaluates models is used again, but only if a new one would be no different."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from collage.errors import ModelCostError
from collage.measure.models import idle, model_process
from collage.measure.models.model_process import MEMORY_VARIABLE, ModelProcess
from collage.measure.models.preparing import prepared_in
from collage_testing import mnist
from tests.hardship import files_up_to, with_tests


@pytest.fixture(autouse=True)
def nothing_idle() -> None:
    while idle._kept:
        idle._kept.pop().child.kill()


def used(**options: Any) -> int:
    """Prepare a model, and return in which process."""
    with ModelProcess(**options) as process:
        prepared_in(process, mnist(), {}, 3600.0)
        assert process.pid is not None
        return process.pid


def taken() -> object:
    """Take the idle process for a model that may take as much."""
    [kept] = idle._kept
    return idle.take(kept.limit_bytes)


def test_a_process_that_did_well_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    before = used()

    monkeypatch.setenv("SOMETHING_ELSE", "1")  # which no such process heeds

    assert used() == before


def test_two_at_a_time_are_two_and_one_is_kept() -> None:
    with ModelProcess() as one, ModelProcess() as other:
        for each in (one, other):
            prepared_in(each, mnist(), {}, 3600.0)
        first, second = one.pid, other.pid

    assert first != second
    assert used() == second  # the inner context is left first
    assert not psutil.pid_exists(first or 0)


def test_a_process_that_failed_is_not_used_again() -> None:
    with ModelProcess() as process:
        prepared_in(process, mnist(), {}, 3600.0)
        failed = process.pid
        assert failed is not None
        os.kill(failed, signal.SIGSTOP)
        with pytest.raises(ModelCostError):
            prepared_in(process, mnist(), {}, -1.0 - model_process._GRACE_S)

    assert idle._kept == []
    assert not psutil.pid_exists(failed)


def test_a_process_that_ended_meanwhile_is_not_used_again() -> None:
    os.kill(used(), signal.SIGKILL)
    [kept] = idle._kept
    while kept.child.alive:
        time.sleep(0.01)

    assert taken() is None


@pytest.mark.parametrize("name", [MEMORY_VARIABLE, "PYTHONHASHSEED", "OMP_NUM_THREADS"])
def test_another_environment_is_another_surrounding(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = idle.surroundings()
    monkeypatch.setenv(name, "1")

    assert idle.surroundings() != before


def test_another_folder_or_limit_of_the_system_is_another_surrounding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = idle.surroundings()
    with files_up_to(1 << 30):
        assert idle.surroundings() != before
    assert idle.surroundings() == before

    monkeypatch.chdir(tmp_path)
    assert idle.surroundings() != before
    tmp_path.rmdir()
    assert idle.surroundings() != before  # a folder that is gone is no error


def test_other_surroundings_take_another_process() -> None:
    before = used()
    with files_up_to(1 << 30):
        assert taken() is None

    assert not psutil.pid_exists(before)


def test_a_model_that_may_take_more_or_less_takes_another_process() -> None:
    first = used(allowance_bytes=300 << 20)
    more = used(allowance_bytes=400 << 20)
    less = used(allowance_bytes=300 << 20)

    assert len({first, more, less}) == 3


def test_a_process_that_holds_much_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle, "_MOST_BYTES", 1 << 20)

    ended = used()

    assert idle._kept == []
    assert not psutil.pid_exists(ended)


def test_a_copy_of_this_process_leaves_it_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    before, own = used(), os.getpid()
    with monkeypatch.context() as copy:
        copy.setattr(os, "getpid", lambda: own + 1)
        assert taken() is None

    assert used() == before


def test_it_ends_with_the_program() -> None:
    program = """
from collage.measure.models.model_process import ModelProcess
from collage.measure.models.preparing import prepared_in
from collage_testing import mnist
with ModelProcess() as process:
    prepared_in(process, mnist(), {}, 3600.0)
    print(process.pid)
"""
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], env=with_tests(), capture_output=True, text=True, check=True
    )

    assert ran.stderr == ""
    assert not psutil.pid_exists(int(ran.stdout))
