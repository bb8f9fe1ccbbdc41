"""JSON and NPZ files are the old ones or the whole new ones, whatever happens to the process or its disk."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from collage.cli.arrays import write_values
from collage.report.files import write_text
from tests.hardship import files_up_to, with_tests

ROOT = Path(__file__).parents[3]

Write = Callable[[Path, int], None]
Read = Callable[[Path], int]


def write_json(path: Path, number: int) -> None:
    write_text(path, json.dumps([number] * 200_000))


def read_json(path: Path) -> int:
    [number] = set(json.loads(path.read_text()))
    return int(number)


def write_npz(path: Path, number: int) -> None:
    write_values(path, {"y": np.full(200_000, number), "z": np.full(3, number)})


def read_npz(path: Path) -> int:
    with np.load(path) as arrays:
        [number] = {*arrays["y"].tolist(), *arrays["z"].tolist()}
    return int(number)


BOTH = pytest.mark.parametrize(("write", "read"), [(write_json, read_json), (write_npz, read_npz)])


@pytest.mark.guards("a process is killed while it saves a package, JSON or NPZ file")
@BOTH
def test_a_process_killed_while_it_writes_leaves_the_old_file(write: Write, read: Read, tmp_path: Path) -> None:
    path, draw = tmp_path / "out", random.Random(2)
    write(path, -1)
    code = (
        f"import itertools, sys\nfrom pathlib import Path\nfrom {__name__} import {write.__name__} as write\n"
        "for number in itertools.count():\n    write(Path(sys.argv[1]), number)\n    print(number, flush=True)\n"
    )
    for _ in range(3):
        with subprocess.Popen(
            [sys.executable, "-P", "-c", code, str(path)],
            env=with_tests(),
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "0\n"
            time.sleep(draw.uniform(0.0, 0.05))
            process.kill()
        assert read(path) >= 0


@pytest.mark.guards("the disk is full while a package, JSON or NPZ file is saved")
@BOTH
def test_a_full_disk_leaves_the_old_file_and_nothing_else(write: Write, read: Read, tmp_path: Path) -> None:
    path = tmp_path / "out"
    write(path, 1)

    with files_up_to(100_000), pytest.raises(OSError, match="File too large"):
        write(path, 2)

    assert read(path) == 1
    assert list(tmp_path.iterdir()) == [path]
