"""The driver's end of a child: a process in its own group that answers frames, or is killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

import psutil

import collage_core
from collage.errors import WireError, WorkerError
from collage.measure.driver import memory
from collage.measure.wire.frames import Frame, FrameParser
from collage.own_process import limit_spinning, own_command

KERNEL_KILLED = "the system killed it"
"""Beginning of the reason for the end of a process that Linux killed for memory, its own or that of others."""
_POLL_S = 0.05
_MARK = "COLLAGE_CHILD"
"""Environment variable inherited by the child's descendants, which identifies them after the child is gone."""
_TAIL_BYTES = 4000
_STACK_LINES = 3
_TAIL_LINES = 8
_LOG_LIMIT_BYTES = 4 << 20
_CENSUS_S = 0.5
"""Seconds between scans for the child's descendants, whose memory counts with the child's."""
_END_S = 10.0
"""Seconds to wait for the end of a process that was killed or has closed its output."""


class ChildProcess:
    """A running Python process that speaks frames on its standard input and output.

    It leads its own session, so that it, and whatever it starts, can be killed together and does not see the
    terminal's interrupt. After any `WorkerError` it is dead.

    Args:
        name: What it works for, for messages.
        module: Python module to run.
        arguments: Its command line.
        environment: Variables to add to this process's own.
        memory_limit_bytes: Most memory it may hold; what `memory.limit_bytes` says if None.
        clock: Gives the seconds by which deadlines pass.

    Attributes:
        limit_bytes: Most memory it, and what it started, may hold; beyond, it is killed when it is next waited for.
    """

    def __init__(
        self,
        name: str,
        module: str,
        arguments: Sequence[str],
        environment: Mapping[str, str] | None = None,
        *,
        memory_limit_bytes: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._clock = clock
        self._mark = uuid.uuid4().hex
        self.limit_bytes = memory.limit_bytes() if memory_limit_bytes is None else memory_limit_bytes
        self._parser = FrameParser()
        self._next_look = self._next_census = 0.0
        self._kernel_kills = memory.kernel_kills()
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  closed by `kill`
        appending = fcntl.fcntl(self._log, fcntl.F_GETFL) | os.O_APPEND  # it writes where the file ends, if it is cut
        fcntl.fcntl(self._log, fcntl.F_SETFL, appending)
        lasting = threading.current_thread() is threading.main_thread()
        try:
            self._process = subprocess.Popen(
                own_command(module, *(["--kernel-kills"] if lasting else []), *arguments),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                bufsize=0,
                env={**_environment(), **(environment or {}), _MARK: self._mark},
                start_new_session=True,
            )
        except OSError as error:
            self._log.close()
            raise WorkerError(name, "start", str(error)) from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._to = self._process.stdin.fileno()
        self._from = self._process.stdout.fileno()
        os.set_blocking(self._to, False)

    @property
    def pid(self) -> int:
        """Process identifier, also that of its group and session."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it can take requests."""
        return not self._log.closed and self._process.poll() is None

    @property
    def held_bytes(self) -> int:
        """Memory it holds, in bytes."""
        return memory.private_bytes(self.pid)

    def begin_anew(self) -> None:
        """Clear what it said so far, and count anew whom the system kills, before its next use."""
        self._log.truncate(0)
        self._kernel_kills = memory.kernel_kills()

    def deadline(self, seconds: float) -> float:
        """Return the moment, by its clock, that is some seconds ahead."""
        return self._clock() + seconds

    def send(self, frame: Frame, deadline: float) -> None:
        """Write a frame.

        Args:
            frame: What to say.
            deadline: When to give up; see the method `deadline`.

        Raises:
            WorkerError: If the process ends or does not read in time.
        """
        data = memoryview(frame.encode())
        while data:
            self._wait(self._to, select.POLLOUT, deadline)
            try:
                data = data[os.write(self._to, data) :]
            except BlockingIOError:
                continue
            except BrokenPipeError:
                raise self._ended() from None

    def receive(self, deadline: float) -> Frame:
        """Read the next frame.

        Raises:
            WorkerError: If the process ends, sends invalid data, or sends nothing in time.
        """
        while True:
            try:
                for frame in self._parser.frames():
                    return frame
            except WireError as error:
                raise self._failed("protocol", str(error)) from error
            self._wait(self._from, select.POLLIN, deadline)
            data = os.read(self._from, 1 << 20)
            if not data:
                raise self._ended()
            self._parser.feed(data)

    def kill(self) -> bool:
        """Kill the process and everything it started; do nothing if it has already ended.

        Returns:
            Whether it has ended: a process blocked on a device or a file system may take long to end.
        """
        if self._log.closed:
            return self._process.returncode is not None
        family = []
        if self._process.returncode is None:  # once it was waited for, its number may be another's
            family = _descendants(self._process.pid)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.kill()
        for process in (*family, *_marked(self._mark)):  # those that left the group, and are perhaps nobody's child now
            try:
                process.kill()
            except psutil.Error:
                continue
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)
        for stream in (self._process.stdin, self._process.stdout, self._log):
            if stream is not None:
                stream.close()
        return self._process.returncode is not None

    def _wait(self, descriptor: int, event: int, deadline: float) -> None:
        poll = select.poll()
        poll.register(descriptor, event)
        while True:
            ready = bool(poll.poll(_POLL_S * 1e3))
            # a process it forked may hold the pipe open after it died, so its own end is looked for too
            if not ready and self._process.poll() is not None:
                if not poll.poll(0):
                    raise self._ended()
                return
            self._hold_to_limits(deadline)
            if ready:
                return

    def _hold_to_limits(self, deadline: float) -> None:
        """Enforce the deadline and the limits on memory and log size, even while the process sends messages."""
        if self._clock() > deadline:
            raise self._failed("deadline", "it did not answer in time and was killed")
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + _POLL_S
        if os.fstat(self._log.fileno()).st_size > _LOG_LIMIT_BYTES:
            self._log.truncate(0)
        held = self.held_bytes
        if now >= self._next_census:
            self._next_census = now + _CENSUS_S
            held = memory.family_bytes(self.pid)
        if held > self.limit_bytes:
            most = f"the {self.limit_bytes >> 20} MiB it may"
            raise self._failed("memory", f"it grew to {held >> 20} MiB, more than {most}, and was killed")

    def _ended(self) -> WorkerError:
        try:
            status = self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            return self._failed("protocol", "it closed its output and went on")
        before, now = self._kernel_kills, memory.kernel_kills()
        if status == -signal.SIGKILL and None not in (before, now) and before != now:
            return self._failed("memory", f"{KERNEL_KILLED} because memory ran out")
        if status < 0:
            try:
                how = f"killed by {signal.Signals(-status).name}"
            except ValueError:
                how = f"killed by signal {-status}"
        else:
            how = f"exited with status {status}"
        return self._failed("crash", how)

    def _failed(self, kind: str, reason: str) -> WorkerError:
        tail = self._tail()
        if not self.kill():
            reason = f"{reason}, and has not ended {_END_S:g} s later (process {self._process.pid})"
        return WorkerError(self.name, kind, f"{reason}; its last words: {tail}" if tail else reason)

    def _tail(self) -> str:
        size = os.fstat(self._log.fileno()).st_size
        text = os.pread(self._log.fileno(), _TAIL_BYTES, max(0, size - _TAIL_BYTES)).decode(errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        for index, line in enumerate(lines):
            if line.startswith("Current thread"):  # faulthandler: the innermost call comes first
                return " | ".join(lines[index + 1 : index + 1 + _STACK_LINES])
        return " | ".join(lines[-_TAIL_LINES:])


def _descendants(pid: int) -> list[psutil.Process]:
    try:
        return list(psutil.Process(pid).children(recursive=True))
    except psutil.Error:
        return []


def _marked(mark: str) -> list[psutil.Process]:
    """Return the processes of this user that inherited a mark."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(_MARK) == mark:
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def _environment() -> dict[str, str]:
    """Return this process's variables, with the same Collage on Python's path even when it is not installed.

    `-P` keeps the working directory off the path: a file named like a library must not break a worker. Threads of
    NumPy's library do not spin for long beside what is timed.
    """
    environment = dict(os.environ)
    limit_spinning(environment)
    engine, core = Path(__file__).parents[3], Path(collage_core.__path__[0]).parent
    roots = dict.fromkeys([str(engine), str(core)])
    added = [root for root in roots if Path(root).name not in ("site-packages", "dist-packages")]
    known = environment.get("PYTHONPATH")
    if added:
        environment["PYTHONPATH"] = os.pathsep.join([*added, *([known] if known else [])])
    return environment
