"""A disk too small for a run's temporary files: said before the search, or in one message that loses nothing.

The disks are real, small ones. They are mounted in a user namespace, which takes no rights; where nobody may have one
the tests are skipped.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from collage.store import open_database
from collage.store.records import TuningRecord
from collage_core.ir.io.model_io import save_model
from collage_testing import GraphBuilder
from tests.hardship import small_disk, with_tests

OPTIMIZE = """
import dataclasses, json, os, sys, tempfile
from pathlib import Path
from collage import options
from collage.decide.races import race
from collage.store import SqliteStore
from click.testing import CliRunner
from collage.cli import main

options.PRESETS["quick"] = dataclasses.replace(options.PRESETS["quick"], rounds=1, round_s=0.005)
race.FIRST_ROUNDS = 1
disk, fills, *arguments = sys.argv[1:]
tempfile.tempdir = disk
os.environ["TMPDIR"] = disk
append = SqliteStore.append

def append_and_fill(store, record):
    append(store, record)
    with open(Path(disk, "filler"), "ab", buffering=0) as filler:
        try:
            while filler.write(bytes(4096)) == 4096:
                pass
        except OSError:
            pass

if fills == "fills":
    SqliteStore.append = append_and_fill
result = CliRunner().invoke(main, arguments)
Path(disk, "filler").unlink(missing_ok=True)
print(json.dumps([result.exit_code, result.stderr, os.listdir(disk)]))
"""


def model(folder: Path) -> Path:
    """Write a model of three distinct operators whose values take 3 x 64 KiB, and its weights as much as one."""
    g = GraphBuilder("small")
    x = g.input("x", 128, 128)
    y = g.op("Relu", g.op("MatMul", x, g.weight("w", 128, 128)))
    save_model(g.model(g.op("Softmax", y)), folder / "small.onnx")
    return folder / "small.onnx"


def optimized(folder: Path, kib: int | None, how: str = "") -> tuple[int, str, list[str]]:
    """Run the command with its temporary files on a disk of a size, or on the usual one.

    Returns:
        Exit status, what was said, and what is left among the temporary files.
    """
    (disk := folder / "disk").mkdir(exist_ok=True)
    arguments = ["optimize", model(folder), "-o", folder / "out.collage", "--toolchains", "reference", "--threads", 1]
    arguments += ["--tuning-db", folder / "tuning.sqlite", "--preset", "quick", "--search", "exact"]
    arguments += ["--warmup", 1, "--iterations", 3, "--duration", 0.001]
    prefix = [] if kib is None else small_disk(disk, kib)
    done = subprocess.run(
        [*prefix, sys.executable, "-P", "-c", OPTIMIZE, str(disk), how, *map(str, arguments)],
        env=with_tests() | {"COLUMNS": "1000"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    status, said, left = json.loads(done.stdout)
    return status, said, left


def records(folder: Path) -> list[TuningRecord]:
    with open_database(folder / "tuning.sqlite", read_only=True) as database:
        return list(database.all_records())


@pytest.mark.guards(
    "the disk of the temporary files is too small for a model's tensors",
    "said before the search, with what is needed and what is left",
    area="kills and databases",
)
def test_a_disk_that_is_too_small_is_noticed_before_anything_is_measured(tmp_path: Path) -> None:
    status, said, left = optimized(tmp_path, 200)

    assert status == 1
    assert "this model takes at least 0.4 MB there while it is measured" in said
    assert "Make room, or set TMPDIR to a folder on a larger disk." in said
    assert records(tmp_path) == []
    assert left == []


@pytest.mark.guards("the disk of the temporary files is too small for a model's tensors")
def test_a_disk_too_small_for_the_weights_is_noticed_when_the_model_is_prepared(tmp_path: Path) -> None:
    status, said, left = optimized(tmp_path, 40)

    assert status == 1
    assert "preparing the model failed: [Errno 28] No space left on device" in said
    assert "Make room, or set TMPDIR to a folder on a larger disk." in said
    assert left == []


@pytest.mark.guards(
    "the disk of the temporary files becomes full while a model is measured",
    "one message with what is needed; what was measured is kept, nothing is held against a kernel, and the next run "
    "goes on",
    area="kills and databases",
)
@pytest.mark.slow
def test_a_disk_that_becomes_full_costs_no_measurement(tmp_path: Path) -> None:
    status, said, left = optimized(tmp_path, 2000, "fills")

    assert status == 1
    [line] = [line for line in said.splitlines() if line.startswith("Error: ")]
    assert "this model takes at least 0.4 MB there while it is measured" in line
    assert "What was measured so far is kept in the tuning database." in line
    assert left == []
    before = records(tmp_path)
    assert [record.outcome for record in before if "No space left" in record.reason] == []
    assert len(before) >= 1

    status, said, left = optimized(tmp_path, None)

    assert status == 0, said
    assert (tmp_path / "out.collage").exists()
    assert [each.content_id for each in before] == [each.content_id for each in records(tmp_path)][: len(before)]
    assert left == []
