"""Many processes write to one store, some are killed, the server restarts: what was acknowledged is there, once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from collage.store import open_database
from tests.hardship import with_tests
from tests.integration.shared_store.server import PostgresServer

pytestmark = pytest.mark.slow

PROCESSES = 8
RECORDS = 10_000

# Appends records, each also tried by its neighbour, and says after each that it is written.
WRITER = """
import sys
from collage.store import RecordKey, TuningRecord, open_database
url, first, count, writers = sys.argv[1], *map(int, sys.argv[2:])
def record(number):
    key = RecordKey(structural_hash=f"h{number % 50}", target="t", fingerprint="f", host="cpu", threads=2,
                    launch="eager", timing="t")
    return TuningRecord(key=key, outcome="measured", purpose="select", created="2026-01-01T00:00:00+00:00",
                        samples_us=(float(number),))
with open_database(url) as store:
    for number in range(first, count, writers):
        store.begin_attempt(record(number).key)
        store.append(record(number))
        if number % 7 == 0:
            store.append(record((number + 1) % count))
        print(number, flush=True)
"""


def written(url: str) -> list[int]:
    with open_database(url, read_only=True) as store:
        return sorted(int(record.samples_us[0]) for record in store.all_records())


def start(url: str, first: int, output: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, url, str(first), str(RECORDS), str(PROCESSES)]
    with output.open("a") as file:
        return subprocess.Popen(command, stdout=file, text=True, env=with_tests())


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "db")
    return str(request.getfixturevalue("database"))


def test_eight_processes_lose_and_double_nothing(url: str, tmp_path: Path) -> None:
    writers = [start(url, first, tmp_path / f"{first}.txt") for first in range(PROCESSES)]

    assert [writer.wait() for writer in writers] == [0] * PROCESSES
    assert written(url) == list(range(RECORDS))


def acknowledged(tmp_path: Path) -> set[int]:
    lines = (line for path in tmp_path.glob("*.txt") for line in path.read_text().splitlines(keepends=True))
    return {int(line) for line in lines if line.endswith("\n")}


def check_disturbed(url: str, tmp_path: Path, *, at_half: Callable[[], None] = lambda: None) -> None:
    """Run writers, kill every other at random, and compare what they said with what is there."""
    draw = random.Random(5)
    writers = [start(url, first, tmp_path / f"{first}.txt") for first in range(PROCESSES)]
    while not all((tmp_path / f"{first}.txt").read_text() for first in range(PROCESSES)):
        assert all(writer.poll() in (None, 0) for writer in writers), "a writer failed before it wrote anything"
        time.sleep(0.05)
    for number, writer in enumerate(writers):
        time.sleep(draw.uniform(0.05, 0.2))
        if number == PROCESSES // 2:
            at_half()
        if number % 2:
            os.kill(writer.pid, signal.SIGKILL)
    ended = [writer.wait() for writer in writers]
    assert ended[::2] == [0] * len(ended[::2])
    said, there = acknowledged(tmp_path), written(url)
    assert len(there) == len(set(there))
    assert said <= set(there)
    assert len(said) >= RECORDS // 2


def test_killed_writers_lose_nothing_that_was_acknowledged(url: str, tmp_path: Path) -> None:
    check_disturbed(url, tmp_path)


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_server_that_restarts_loses_nothing_and_writers_go_on(
    server: PostgresServer, database: str, tmp_path: Path, mode: str
) -> None:
    def restart() -> None:
        server.stop(mode)
        time.sleep(0.5)
        server.start()

    check_disturbed(database, tmp_path, at_half=restart)
