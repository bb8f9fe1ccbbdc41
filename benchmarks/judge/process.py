"""The harness's end of a contender's process: every answer has a deadline."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
_TAIL_LINES = 3


class ContenderError(Exception):
    """A contender raised, crashed or did not answer in time; the message is the reason."""


class ContenderProcess:
    """A fresh process that serves one contender (`benchmarks.judge.worker`).

    Args:
        log: File that receives whatever the process prints, in a folder for its temporary files.
    """

    def __init__(self, log: Path) -> None:
        self._log = log
        environment = dict(os.environ)
        paths = [str(ROOT), environment.get("PYTHONPATH", "")]
        environment["TMPDIR"] = str(log.parent)  # it is killed, so it cannot clear up what it keeps there
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        with log.open("wb") as stream:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.judge.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stream,
                env=environment,
            )
        self._pending = b""

    def ask(self, command: dict[str, Any], deadline_s: float) -> dict[str, Any]:
        """Send a command and wait for its answer.

        Raises:
            ContenderError: If the answer is a failure or does not come within the deadline, or the
                process ends. The process is of no use afterwards.
        """
        assert self._process.stdin is not None
        # A pipe broken by a dead process is reported by the read, which knows the exit status.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(command).encode() + b"\n")
            self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._line(deadline_s))
        if "failed" in answer:
            raise ContenderError(answer["failed"])
        return answer

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()

    def _line(self, deadline_s: float) -> bytes:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        end = time.monotonic() + deadline_s
        while b"\n" not in self._pending:
            left = end - time.monotonic()
            if left <= 0 or not select.select([descriptor], [], [], left)[0]:
                raise ContenderError(f"no answer within {deadline_s:g} s")
            block = os.read(descriptor, 1 << 20)
            if not block:
                raise ContenderError(self._death())
            self._pending += block
        line, _, self._pending = self._pending.partition(b"\n")
        return line

    def _death(self) -> str:
        status = self._process.wait()
        how = f"was killed by signal {-status}" if status < 0 else f"exited with status {status}"
        lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        said = " | ".join(line.strip() for line in lines[-_TAIL_LINES:])
        return f"the process {how}" + (f": {said}" if said else "")
