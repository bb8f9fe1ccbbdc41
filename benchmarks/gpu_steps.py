"""Steps of `benchmarks/gpu.py` that are separate processes, and their remaining time."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

_LEAST_LEFT_S = 45.0
"""Least remaining time to start a step, in seconds."""
_TAIL = 600
_ERROR = re.compile(r"^\s*Error: ", re.MULTILINE)
"""What `collage` begins its last words with, behind lines of progress."""


class OutOfTimeError(Exception):
    """The time of `--minutes` is over; the message names the step that was not started."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Remaining time.

    Attributes:
        end: Time of `now` after which no new step is started; None for never.
        now: Returns the time in seconds.
    """

    end: float | None = None
    now: Callable[[], float] = time.monotonic

    def left(self, most: float, before: str) -> float:
        """Return the seconds that a step may take, at most `most`.

        Raises:
            OutOfTimeError: If too little time is left to begin it.
        """
        if self.end is None:
            return most
        left = self.end - self.now()
        if left < _LEAST_LEFT_S:
            raise OutOfTimeError(before)
        return min(most, left)


def gpu(device: str) -> str:
    """Query name, memory and driver of a device with `nvidia-smi`.

    Raises:
        ValueError: If there is none; gives the reason.
    """
    fields = "index,name,memory.total,driver_version"
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ValueError(f"there is no NVIDIA GPU here, or no driver for it: {error}") from error
    if answer.returncode:
        raise ValueError(f"nvidia-smi shows no GPU: {' '.join((answer.stdout + answer.stderr).split())}")
    for line in answer.stdout.splitlines():
        index, name, memory, driver = (part.strip() for part in line.split(","))
        if device == f"cuda:{index}":
            return f"{name}, {memory}, driver {driver}"
    raise ValueError(f"nvidia-smi shows no {device}: {'; '.join(answer.stdout.splitlines())}")


def made(done: Path, command: Sequence[str], deadline_s: float, again: bool = False) -> str:
    """Run a command unless its output file exists or it failed before.

    Args:
        done: Output file. The message of a failure is stored beside it.
        command: Command to run.
        deadline_s: Seconds after which the command is killed. A timeout is not recorded as a failure.
        again: Whether to retry after an earlier failure.

    Returns:
        Why `done` is missing; empty if it exists.
    """
    refused = done.with_name(f"{done.name}.refused.txt")
    if done.is_file():
        return ""
    if refused.is_file() and not again:
        return refused.read_text(encoding="utf-8")
    root = str(Path(__file__).resolve().parent.parent)
    paths = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
    try:
        run = subprocess.run(
            command,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": paths},
            timeout=deadline_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"not done within {deadline_s:.0f} s"
    if run.returncode == 0 and done.is_file():
        refused.unlink(missing_ok=True)
        return ""
    said = run.stderr.strip() or run.stdout.strip()
    last = [found.start() for found in _ERROR.finditer(said)]
    reason = " ".join(said[last[-1] if last else -_TAIL :][:_TAIL].split()) or f"status {run.returncode}"
    refused.write_text(reason, encoding="utf-8")
    return reason


def unusable_here(work: Path) -> dict[str, str]:
    """Return why toolchains are unusable, by name, from the `collage doctor` report that `targets_here` wrote."""
    file = work / "doctor.json"
    if not file.is_file():
        return {}
    found = json.loads(file.read_text(encoding="utf-8"))
    return {str(each["name"]): str(each["unusable"]) for each in found["toolchains"] if each["unusable"]}


def targets_here(work: Path, deadline_s: float) -> list[str]:
    """Return the names of all targets that the installed toolchains offer, as found by `collage doctor`."""
    file = work / "doctor.json"
    file.unlink(missing_ok=True)
    made(file, [sys.executable, "-m", "collage.cli", "doctor", "--json", str(file)], deadline_s, again=True)
    if not file.is_file():
        return []
    found = json.loads(file.read_text(encoding="utf-8"))
    return [str(target) for toolchain in found["toolchains"] for target in toolchain["targets"]]
