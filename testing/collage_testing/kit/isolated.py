"""Run work in a separate process; the caller gets an answer in time even if that process crashes or hangs."""

from __future__ import annotations

import contextlib
import dataclasses
import faulthandler
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

_LAST_LINES = 6
_STACK_LINES = 8


@dataclasses.dataclass(frozen=True, slots=True)
class Lost:
    """No answer: the process is gone.

    Attributes:
        kind: `"crash"` or `"timeout"`.
        reason: How it ended, and its last output.
    """

    kind: str
    reason: str


class IsolatedProcess:
    """A Python module that answers each input line with one line of JSON; see `serve`.

    Args:
        module: Module to run.
        arguments: Its command line.
        folder: Its working directory.
        start_s: Time limit for starting, in seconds.

    Raises:
        RuntimeError: If it does not start.
    """

    def __init__(self, module: str, arguments: Sequence[str], *, folder: Path, start_s: float = 300.0) -> None:
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  closed by `close`
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=folder,
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._to, self._from = self._process.stdin, self._process.stdout
        self._rest = b""
        self.asked = 0
        answer = self._answer(start_s)
        if isinstance(answer, Lost):
            self.close()
            raise RuntimeError(f"{module} did not start: {answer.reason}")

    @property
    def alive(self) -> bool:
        """Whether it can take requests."""
        return not self._log.closed and self._process.poll() is None

    def ask(self, line: str, limit_s: float) -> Any:
        """Send a line and return the answer, or `Lost`, after which the process is unusable."""
        self.asked += 1
        with contextlib.suppress(BrokenPipeError):  # the answer says how it died
            self._to.write(f"{line}\n".encode())
            self._to.flush()
        return self._answer(limit_s)

    def close(self) -> None:
        """Kill the process and its whole process group; do nothing if it has ended."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._to, self._from, self._log):
            with contextlib.suppress(BrokenPipeError):
                stream.close()

    def _answer(self, limit_s: float) -> Any:
        end = time.monotonic() + limit_s
        while b"\n" not in self._rest:
            ready = select.select([self._from], [], [], max(0.0, end - time.monotonic()))[0]
            if not ready:
                self._process.send_signal(signal.SIGABRT)  # faulthandler then says where it was
                self._process.wait(10)
                return Lost("timeout", f"no answer within {limit_s:g} s: {self._last_words()}")
            data = os.read(self._from.fileno(), 1 << 16)
            if not data:
                status = self._process.wait(10)
                how = signal.Signals(-status).name if status < 0 else f"exit status {status}"
                return Lost("crash", f"{how}: {self._last_words()}")
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return json.loads(line)

    def _last_words(self) -> str:
        self._log.seek(0)
        lines = [line.strip() for line in self._log.read().decode(errors="replace").splitlines() if line.strip()]
        for place, line in enumerate(lines):
            if line.startswith("Current thread"):  # faulthandler: the innermost call comes first
                return " | ".join(lines[place + 1 : place + 1 + _STACK_LINES])
        return " | ".join(lines[-_LAST_LINES:])


def serve(answer: Callable[[str], Any]) -> None:
    """Answer each line of standard input with a line of JSON, until the input ends; the worker's side.

    Args:
        answer: Takes a line; its own printed output goes to standard error.
    """
    faulthandler.enable()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print is no answer
    print(json.dumps("ready"), file=answers)
    for line in sys.stdin:
        print(json.dumps(answer(line.rstrip("\n"))), file=answers)
