"""A driver that is killed at any point loses nothing it was told is kept."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from collage.store import TuningRecord, open_database
from tests.integration.commands.conftest import BOTH, TINY_ARGUMENTS
from tests.integration.commands.models import written

pytestmark = [pytest.mark.plugins, pytest.mark.slow]


def command(model: Path, folder: Path) -> list[str]:
    code = "from collage.cli import main; main()"
    arguments = ["optimize", str(model), "-o", str(folder / "out.collage"), "--json", str(folder / "out.json")]
    arguments += ["--toolchains", BOTH, "--tuning-db", str(folder / "tuning.sqlite"), *TINY_ARGUMENTS]
    return [sys.executable, "-P", "-c", code, *arguments]


def kept(folder: Path) -> dict[str, TuningRecord]:
    """Records by content."""
    if not (folder / "tuning.sqlite").exists():
        return {}
    with open_database(folder / "tuning.sqlite") as database:
        return {record.content_id: record for record in database.all_records()}


@pytest.mark.guards(
    "a run is killed after a number of records",
    "it resumes; hits and measurements are counted exactly",
    area="kills and databases",
)
@pytest.mark.parametrize("seed", range(2))
def test_a_killed_run_resumes_where_it_was(seed: int, tmp_path: Path) -> None:
    model, draw = written("transformer", tmp_path), random.Random(seed)
    seen: dict[str, TuningRecord] = {}
    scratch = {**os.environ, "TMPDIR": str(tmp_path)}  # what is killed leaves its folder behind
    for _ in range(4):
        process = subprocess.Popen(
            command(model, tmp_path), env=scratch, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        wanted = len(seen) + draw.randint(1, 6)
        while process.poll() is None and len(seen) < wanted:
            time.sleep(draw.uniform(0.0, 0.05))
            found = kept(tmp_path)
            assert set(seen) <= set(found)
            seen = found
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert set(seen) <= set(kept(tmp_path))
    assert process.returncode == -signal.SIGKILL  # there was still something to do
    before = kept(tmp_path)

    finished = subprocess.run(command(model, tmp_path), capture_output=True, text=True, check=False)

    assert finished.returncode == 0, finished.stderr
    after, search = kept(tmp_path), json.loads((tmp_path / "out.json").read_text())["search"]
    assert set(before) <= set(after)
    assert search["measured"] == len(after) - len(before)
    assert search["cache_hits"] == len({record.key for record in before.values() if record.purpose == "select"})
    assert search["measured"] > 0
