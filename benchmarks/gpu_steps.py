"""The steps of `benchmarks/gpu.py` that are processes of their own, and the time that is left for them."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

_LEAST_LEFT_S = 45.0
"""A step is not begun with less time left."""
_TAIL = 600


class OutOfTimeError(Exception):
    """`--minutes` are over; the message says before what."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """How much time is left.

    Attributes:
        end: When to begin nothing new, by `now`; None for never.
        now: Seconds.
    """

    end: float | None = None
    now: Callable[[], float] = time.monotonic

    def left(self, most: float, before: str) -> float:
        """Seconds that a step may take, at most `most`.

        Raises:
            OutOfTimeError: If too few are left to begin it.
        """
        if self.end is None:
            return most
        left = self.end - self.now()
        if left < _LEAST_LEFT_S:
            raise OutOfTimeError(before)
        return min(most, left)


def gpu(device: str) -> str:
    """Name, memory and driver of a device, by `nvidia-smi`.

    Raises:
        ValueError: If there is none; says why.
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
    """Runs a command unless what it makes is there, or it refused before.

    Args:
        done: What it makes. What it said when it failed is kept beside it.
        command: Which.
        deadline_s: When to end it. What it had not finished then is not held against it.
        again: Whether an old failure is tried anew.

    Returns:
        Why `done` is not there; empty if it is.
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
    reason = " ".join((run.stderr.strip() or run.stdout.strip())[-_TAIL:].split()) or f"status {run.returncode}"
    refused.write_text(reason, encoding="utf-8")
    return reason


def unusable_here(work: Path) -> dict[str, str]:
    """Why toolchains are not usable, by name, as `collage doctor` said it to `targets_here`."""
    file = work / "doctor.json"
    if not file.is_file():
        return {}
    found = json.loads(file.read_text(encoding="utf-8"))
    return {str(each["name"]): str(each["unusable"]) for each in found["toolchains"] if each["unusable"]}


def targets_here(work: Path, deadline_s: float) -> list[str]:
    """Every target that the installed toolchains offer, by name, as `collage doctor` finds them."""
    file = work / "doctor.json"
    file.unlink(missing_ok=True)
    made(file, [sys.executable, "-m", "collage.cli", "doctor", "--json", str(file)], deadline_s, again=True)
    if not file.is_file():
        return []
    found = json.loads(file.read_text(encoding="utf-8"))
    return [str(target) for toolchain in found["toolchains"] for target in toolchain["targets"]]
