"""Measure what models that ask for much cost `collage inspect` and `collage optimize`: seconds and memory.

Usage:
    python -m benchmarks.expensive_attributes [NAME...] --work DIR [--results FILE.json] [--limit SECONDS]

Each model of `models/expensive.py` is a small file. Both commands are run on it, `optimize` with `--preset quick
--budget 20s` and an empty tuning database. Memory is the peak of the resident size of the largest process that the
command started, itself included. Each command must end with a result, or with one message. What takes more than
`--limit` seconds or more memory than `--memory` is killed, so that the machine survives the benchmark.

Exits with 1 if a command takes too long or too much memory, or says too much.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import onnx
import psutil

from benchmarks.models.expensive import EXPENSIVE
from benchmarks.page import environment, head, lines_of, noting, written

WALL_S: Final = 30.0
"""Most seconds that a command may take, on a machine without other load."""
MEMORY_BYTES: Final = 2 << 30
"""Most memory that a process may hold beside the model."""
MESSAGE_CHARACTERS: Final = 2000
BUDGET: Final = "20s"
COMMANDS: Final = ("inspect", "optimize")
_POLL_S: Final = 0.03
_MARK: Final = "COLLAGE_BENCHMARK_RUN"
HEADINGS: Final = ("model", "command", "ended with", "seconds", "processor s", "MB", "said")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one command did.

    Attributes:
        model: Name of the model.
        model_bytes: Size of its file.
        command: `"inspect"` or `"optimize"`.
        ended: `"result"`, `"message"`, `"traceback"`, `"killed"` by this benchmark, or `"status N"`.
        seconds: Wall-clock seconds.
        processor_s: Processor seconds of all its processes; those of a process that nobody waited for are missing.
        peak_bytes: Peak of the resident size of the largest process.
        left: Number of processes that were still alive when the command had ended.
        said: What it wrote to standard error.
    """

    model: str
    model_bytes: int
    command: str
    ended: str
    seconds: float
    processor_s: float
    peak_bytes: int
    left: int
    said: str

    def faults(self) -> list[str]:
        """Return what does not hold, a few words each."""
        found = [] if self.ended in ("result", "message") else [self.ended]
        if self.seconds > WALL_S:
            found.append(f"{self.seconds:.0f} s")
        if self.peak_bytes > MEMORY_BYTES + self.model_bytes:
            found.append(f"{self.peak_bytes >> 20} MB")
        if len(self.said) > MESSAGE_CHARACTERS:
            found.append(f"{len(self.said)} characters")
        if self.left:
            found.append(f"{self.left} processes left")
        return found


def arguments_of(command: str, model: Path, folder: Path) -> list[str]:
    """Return the command line, without Python."""
    if command == "inspect":
        return ["inspect", str(model)]
    database = str(folder / "tuning.sqlite")
    package = str(folder / "model.collage")
    return ["optimize", str(model), "-o", package, "--preset", "quick", "--budget", BUDGET, "--tuning-db", database]


def watched(
    arguments: Sequence[str], limit_s: float, most_bytes: int
) -> tuple[int | None, float, float, int, int, str]:
    """Run `collage` and watch its processes.

    Args:
        arguments: Of the command.
        limit_s: Seconds after which it is killed.
        most_bytes: Resident size of a process beyond which all are killed.

    Returns:
        Its exit status, None if it was killed; seconds; processor seconds; peak of the largest process in bytes;
        number of processes it left; what it wrote to standard error.
    """
    mark = f"{os.getpid()}-{time.monotonic_ns()}"
    with tempfile.TemporaryFile() as said:
        began, used_s = time.monotonic(), _children_s()
        process = subprocess.Popen(
            [sys.executable, "-m", "collage.cli", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
            env={**os.environ, _MARK: mark},
            start_new_session=True,
        )
        peak, status = 0, None
        while (status := process.poll()) is None:
            family = [process.pid, *_children(process.pid)]
            peak = max(peak, *(_peak_bytes(pid) for pid in family))
            if time.monotonic() - began > limit_s or peak > most_bytes:
                break
            time.sleep(_POLL_S)
        seconds = time.monotonic() - began
        killed = status is None
        if killed:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        time.sleep(0.5)  # children notice the end of the driver within moments
        left = _marked(mark)
        for each in left:
            each.kill()
        said.seek(0)
        text = said.read().decode(errors="replace")
        used_s = _children_s() - used_s
    return (None if killed else status), seconds, used_s, peak, len(left), text


def run(name: str, command: str, work: Path, *, limit_s: float, most_bytes: int) -> Run:
    """Run one command on one model."""
    path = work / f"{name}.onnx"
    if not path.exists():
        onnx.save(EXPENSIVE[name](), path)
    with tempfile.TemporaryDirectory(dir=work) as folder:
        arguments = arguments_of(command, path, Path(folder))
        status, seconds, used_s, peak, left, said = watched(arguments, limit_s, most_bytes)
    if status is None:
        ended = "killed"
    elif "Traceback (most recent call last)" in said:
        ended = "traceback"
    else:
        ended = {0: "result", 1: "message", 2: "message"}.get(status, f"status {status}")
    return Run(
        model=name,
        model_bytes=path.stat().st_size,
        command=command,
        ended=ended,
        seconds=round(seconds, 1),
        processor_s=round(used_s, 1),
        peak_bytes=peak,
        left=left,
        said=said,
    )


def markdown(report: Mapping[str, Any]) -> str:
    """Format the results as a page."""
    how = (
        f"`collage inspect` and `collage optimize --preset quick --budget {BUDGET}` on small models that ask for much. "
        "MB is the peak of the resident size of the largest process. A command must end with a result or one message "
        f"within {WALL_S:.0f} s and {MEMORY_BYTES >> 20} MB; what is in bold does not hold."
    )
    lines = head("Expensive attributes", report["environment"], how, "all toolchains that are installed")
    runs = [Run(**each) for each in report["runs"]]
    rows = [
        (
            each.model,
            each.command,
            each.ended if each.ended in ("result", "message") else f"**{each.ended}**",
            f"**{each.seconds:.0f}**" if each.seconds > WALL_S else f"{each.seconds:.0f}",
            f"{each.processor_s:.0f}",
            _figure(each.peak_bytes >> 20, good=each.peak_bytes <= MEMORY_BYTES + each.model_bytes),
            _first_words(each),
        )
        for each in runs
    ]
    kept = sum(not each.faults() for each in runs)
    return "\n".join([*lines, f"{kept} of {len(runs)} runs hold.", "", *lines_of(HEADINGS, rows)]) + "\n"


def _figure(value: int, *, good: bool) -> str:
    return str(value) if good else f"**{value}**"


def _first_words(each: Run) -> str:
    lines = [line.strip() for line in each.said.splitlines() if line.strip().startswith("Error")]
    words = lines[-1] if lines and each.ended == "message" else ""
    words = words.replace("|", "/").replace("<", "(").replace(">", ")")
    return words if len(words) <= 160 else words[:157] + "..."


def _children_s() -> float:
    """Return the processor seconds of the processes that this one started, and of theirs, once they ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _children(pid: int) -> list[int]:
    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.Error:
        return []


def _peak_bytes(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) << 10
    except OSError:
        pass
    return 0


def _marked(mark: str) -> list[psutil.Process]:
    """Return the processes of a run that are alive."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(_MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run everything; return 1 if a limit does not hold, 2 for misuse."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.expensive_attributes", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all")
    parser.add_argument("--work", type=Path, default=Path("demo-out/expensive"), metavar="DIR", help="folder for files")
    parser.add_argument("--results", type=Path, metavar="FILE.json", help="write everything there and a page beside it")
    parser.add_argument("--command", choices=COMMANDS, action="append", help="default: both")
    parser.add_argument("--limit", type=float, default=90.0, metavar="SECONDS", help="kill a command after this long")
    parser.add_argument("--memory", type=float, default=6.0, metavar="GB", help="kill a command beyond this much")
    noting(parser)
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.names) - set(EXPENSIVE)):
        print(f"expensive_attributes: no model {', '.join(unknown)}", file=sys.stderr)
        return 2
    work = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    found: list[Run] = []
    for name in options.names or EXPENSIVE:
        for command in options.command or COMMANDS:
            each = run(name, command, work, limit_s=options.limit, most_bytes=int(options.memory * 1e9))
            found.append(each)
            print(
                f"{name} {command}: {each.ended}, {each.seconds:.1f} s, {each.processor_s:.1f} processor s, "
                f"{each.peak_bytes >> 20} MB"
                + (f"; not held: {', '.join(each.faults())}" if each.faults() else "")
                + (f"\n    {_first_words(each)}" if _first_words(each) else ""),
                flush=True,
            )
    report = {"schema_version": 1, "environment": environment(), "runs": [dataclasses.asdict(each) for each in found]}
    if options.results:
        written(options.results, report, markdown(report), options.note, afresh=True)
    return 1 if any(each.faults() for each in found) else 0


if __name__ == "__main__":
    sys.exit(main())
