"""`optimize` killed anywhere, at moments spread over its whole run: what it acknowledged is there when it goes on."""

from __future__ import annotations

import collections
import dataclasses
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from collage.commands.load import load
from collage.runtime.package import load_package
from collage.store import TuningRecord, open_database
from collage.store.errors import DatabaseError
from collage.temporary_folders import sweep
from tests.integration.commands.conftest import BOTH, TINY_ARGUMENTS, check
from tests.integration.commands.models import inputs, reference, written

SHORT = """
import dataclasses
from collage import options
from collage.decide.races import race
options.PRESETS["quick"] = dataclasses.replace(options.PRESETS["quick"], operators=24, rounds=2, round_s=0.005)
race.FIRST_ROUNDS = 1
from collage.cli import main
main()
"""

HOLDS = """
import time
from collage.store import SqliteStore
append = SqliteStore.append

def append_and_hold(store, record):
    append(store, record)
    time.sleep(3600)

SqliteStore.append = append_and_hold
"""
"""Keeps a run where it is after its first record."""

Records = dict[str, TuningRecord]


@dataclasses.dataclass(frozen=True)
class Work:
    """One model to optimize into one folder, over one database there.

    Attributes:
        model: The model.
        toolchains: Targets to use.
        folder: Where everything goes, temporary files too.
    """

    model: Path
    toolchains: str
    folder: Path

    def start(self, program: str = SHORT) -> subprocess.Popen[str]:
        """Begins, or goes on."""
        self.folder.mkdir(exist_ok=True)
        arguments = ["optimize", self.model, "-o", self.package, "--json", self.folder / "out.json"]
        arguments += ["--toolchains", self.toolchains, "--tuning-db", self.database, *TINY_ARGUMENTS]
        return subprocess.Popen(
            [sys.executable, "-P", "-c", program, *map(str, arguments)],
            env={**os.environ, "TMPDIR": str(self.folder)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    @property
    def package(self) -> Path:
        return self.folder / "out.collage"

    @property
    def database(self) -> Path:
        return self.folder / "tuning.sqlite"

    def temporary(self) -> list[Path]:
        """Folders of its own that are among the temporary files."""
        return list(self.folder.glob("collage-*"))

    def seen(self) -> Records:
        """What a process beside it sees of its records."""
        try:
            with open_database(self.database, read_only=True) as database:
                return {record.content_id: record for record in database.all_records()}
        except DatabaseError:
            return {}  # not made yet, or being made at this moment

    def kept(self) -> Records:
        """What is there, in a database that was looked through."""
        with open_database(self.database) as database:
            return {record.content_id: record for record in database.all_records()}

    def finish(self, before: Records) -> Records:
        """Lets it come to its end, and checks that it took up what it had and that its package is right."""
        self.package.unlink(missing_ok=True)  # one killed at its very end had saved it: nothing would be left to do
        _, said = (process := self.start()).communicate()
        assert process.returncode == 0, said
        self.check()
        assert self.temporary() == []
        after, search = self.kept(), json.loads((self.folder / "out.json").read_text())["search"]
        assert set(before) <= set(after)
        assert search["measured"] == len(after) - len(before)
        return after

    def check(self) -> None:
        """The package is right, and no candidate was measured twice to select it."""
        feeds = inputs(self.model)
        session = load(self.package)
        names = [output.name for output in session.get_outputs()]
        check(dict(zip(names, session.run(None, feeds), strict=True)), reference(self.model, feeds))
        selected = collections.Counter(record.key for record in self.kept().values() if record.purpose == "select")
        assert max(selected.values()) == 1


def kill(work: Work, after_s: float) -> bool:
    """Starts, kills after a while, and checks what is left.

    Returns:
        Whether there was still something to kill.
    """
    before = work.kept() if work.database.exists() else {}
    process = work.start()
    try:
        process.wait(timeout=after_s)
    except subprocess.TimeoutExpired:
        acknowledged = work.seen()
        process.kill()
    _, said = process.communicate()
    if process.returncode == 0:
        work.check()
        return False
    assert process.returncode == -9, said
    left = work.kept() if work.database.exists() else {}
    assert set(before) <= set(left)
    assert set(acknowledged) <= set(left)
    if work.package.exists():  # whole, or not there
        assert load_package(work.package).plan.record is not None
    wait_for_nobody(work.folder)
    return True


def working_in(folder: Path) -> list[tuple[int, list[str]]]:
    """A driver, its workers and its contenders: each has its temporary files in the folder."""
    return [
        (process.info["pid"], process.info["cmdline"])
        for process in psutil.process_iter(["pid", "cmdline", "environ"])
        if Path((process.info["environ"] or {}).get("TMPDIR", "/")).is_relative_to(folder)
    ]


def wait_for_nobody(folder: Path) -> None:
    """No process that works for a driver outlives it."""
    while working_in(folder):
        time.sleep(0.05)


def killed_and_resumed(model: Path, toolchains: str, kills: int, seed: int) -> None:
    draw = random.Random(seed)
    folders = (Work(model, toolchains, model.parent / f"run{number}") for number in range(100))
    work = next(folders)
    began = time.monotonic()
    work.finish({})
    whole_s = time.monotonic() - began
    moments = [whole_s * (number + draw.random()) / kills for number in range(kills)]
    draw.shuffle(moments)

    work = next(folders)
    waiting = collections.deque(moments)
    while waiting:
        began = time.monotonic()
        if kill(work, waiting[0]):
            waiting.popleft()
        else:  # it had so much already, or a machine so idle, that it came to its end before: another, from the start
            work = next(folders)
            waiting[0] = min(waiting[0], time.monotonic() - began) * draw.uniform(0.5, 1.0)
    before = work.kept() if work.database.exists() else {}
    work.finish(before)


@pytest.mark.guards(
    "`optimize` is killed with SIGKILL at two moments of its run",
    "every record is there after the next run, nothing is measured twice, no worker is left, the package is right",
    area="kills and databases",
)
@pytest.mark.guards("the driver is killed while it prepares a model or verifies the winner")
@pytest.mark.slow
def test_a_run_that_was_killed_goes_on_with_every_record(tmp_path: Path) -> None:
    killed_and_resumed(written("cnn", tmp_path), "reference", kills=2, seed=1)


@pytest.mark.guards(
    "SIGTERM (`timeout`, `docker stop`) or SIGHUP (a closed terminal)",
    "ends as after Ctrl-C: no attempt, worker or temporary file is left; status 143 or 129; under `nohup`"
    " SIGHUP stays ignored",
    area="kills and databases",
)
def test_a_run_that_is_asked_to_end_leaves_nothing_but_its_records(tmp_path: Path) -> None:
    work = Work(written("cnn", tmp_path), "reference", tmp_path / "run")
    process = work.start(SHORT.replace("from collage.cli", f"{HOLDS}from collage.cli"))
    while process.poll() is None and not work.seen():
        time.sleep(0.05)
    assert len(working_in(work.folder)) > 1

    process.terminate()
    _, said = process.communicate()

    assert process.returncode == 143, said
    assert "Ended by SIGTERM. What was measured so far is kept in the tuning database." in said
    wait_for_nobody(work.folder)
    assert [path for path in work.folder.iterdir() if not path.name.startswith("tuning.sqlite")] == []
    with open_database(work.database) as database:
        assert database.stats().records
        assert not database.stats().open_attempts


@pytest.mark.guards("a run is killed with SIGKILL: its temporary folders stay behind")
def test_what_a_killed_run_left_on_disk_goes_with_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = Work(written("cnn", tmp_path), "reference", tmp_path / "run")
    process = work.start(SHORT.replace("from collage.cli", f"{HOLDS}from collage.cli"))
    while process.poll() is None and not work.seen():
        time.sleep(0.05)
    process.kill()
    process.communicate()
    wait_for_nobody(work.folder)
    left = work.temporary()
    monkeypatch.setattr("tempfile.tempdir", str(work.folder))

    swept = sweep()  # as each run does first

    assert len(left) == swept.folders >= 2  # the run's own, and its worker's
    assert work.temporary() == []


@pytest.mark.guards(
    "`optimize` is killed with SIGKILL at 30 moments spread over its run",
    "every record seen before is there after the next run, nothing is measured twice, no worker is left, "
    "the package is right",
    area="kills and databases",
)
@pytest.mark.slow
@pytest.mark.plugins
def test_a_run_that_was_killed_at_thirty_moments_goes_on_with_every_record(tmp_path: Path) -> None:
    killed_and_resumed(written("transformer", tmp_path), BOTH, kills=30, seed=7)
