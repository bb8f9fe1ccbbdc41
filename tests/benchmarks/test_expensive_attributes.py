"""Models that ask for much: what they are, and what the benchmark says of a run."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from typing import Any

import onnx
import pytest

from benchmarks.expensive_attributes import MEMORY_BYTES, Run, markdown, watched
from benchmarks.models.expensive import EXPENSIVE

LARGE_FILES = {"chain", "chain_constant", "outputs", "outputs_of_one", "sequence_chain", "diamonds", "inputs"}
GOOD = Run(
    model="m",
    model_bytes=1000,
    command="inspect",
    ended="message",
    seconds=29.0,
    processor_s=12.0,
    peak_bytes=2 << 30,
    left=0,
    said="",
)


def test_there_are_sixty_models() -> None:
    assert len(EXPENSIVE) == 60


@pytest.mark.parametrize("name", sorted(set(EXPENSIVE) - LARGE_FILES))
def test_a_model_is_small_and_valid(name: str) -> None:
    model = EXPENSIVE[name]()

    assert model.ByteSize() < 5_000_000
    onnx.checker.check_model(model)


@pytest.mark.parametrize(
    ("changes", "faults"),
    [
        ({}, []),
        ({"ended": "result", "peak_bytes": MEMORY_BYTES + 1000}, []),
        ({"ended": "killed"}, ["killed"]),
        ({"seconds": 31.0}, ["31 s"]),
        ({"peak_bytes": MEMORY_BYTES + 1001}, ["2048 MB"]),
        ({"said": "x" * 2001}, ["2001 characters"]),
        ({"left": 2}, ["2 processes left"]),
    ],
)
def test_a_run_is_held_to_each_limit(changes: dict[str, object], faults: list[str]) -> None:
    assert dataclasses.replace(GOOD, **changes).faults() == faults  # type: ignore[arg-type]


def test_what_grows_is_killed_and_what_is_left_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    program = (
        "import subprocess, sys, time\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], start_new_session=True)\n"
        "held = b'x' * (200 << 20)\ntime.sleep(60)\n"
    )
    popen = subprocess.Popen

    def instead(command: list[str], **options: Any) -> Any:
        return popen([sys.executable, "-c", program], **options)

    monkeypatch.setattr(subprocess, "Popen", instead)

    status, _, _, peak, left, _ = watched([], 60.0, 150 << 20)

    assert status is None
    assert peak > 150 << 20
    assert left == 1


def test_the_page_marks_what_does_not_hold() -> None:
    environment = {"date": "2026-01-01T00:00:00", "host": {"cpu": "c", "cores": 2, "system": "s"}, "versions": {}}
    bad = dataclasses.replace(GOOD, ended="killed", seconds=90.0, said="Error: no | such thing")
    good = dataclasses.replace(GOOD, said="noted\nError: too <large>\n")

    page = markdown({"environment": environment, "runs": [dataclasses.asdict(each) for each in (good, bad)]})

    assert "1 of 2 runs hold." in page
    assert "| m | inspect | message | 29 | 12 | 2048 | Error: too (large) |" in page
    assert "| m | inspect | **killed** | **90** | 12 | 2048 |  |" in page
