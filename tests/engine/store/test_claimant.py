"""A process is known from a later one of its number, and from those of other machines."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import time

import psutil
import pytest

from collage.store.claimant import Claimant


def test_this_process_lives() -> None:
    assert Claimant.this().is_this
    assert Claimant.this().lives(time.time())


@pytest.mark.guards("several runs over one database measure the same candidate at once")
def test_an_earlier_process_of_the_same_number_is_dead() -> None:
    earlier = dataclasses.replace(Claimant.this(), started=Claimant.this().started - 3600)

    assert not earlier.is_this
    assert not earlier.lives(time.time())


@pytest.mark.guards("several runs over one database measure the same candidate at once")
def test_one_that_was_killed_is_dead_though_nobody_asked_how_it_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        running = psutil.Process(process.pid)
        other = dataclasses.replace(Claimant.this(), pid=process.pid, started=running.create_time())
        assert other.lives(time.time())
        process.kill()
        while running.status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.01)
        assert not other.lives(time.time())
    assert not other.lives(time.time())


@pytest.mark.guards("several runs over one database measure the same candidate at once")
def test_one_of_another_machine_lives_until_it_was_not_heard_of_for_long() -> None:
    far = dataclasses.replace(Claimant.this(), machine="another")

    assert not far.is_this
    assert far.lives(time.time() - 60)
    assert not far.lives(time.time() - 7200)
