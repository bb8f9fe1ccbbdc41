"""Watch the process of a command from a parent, which notices when it ends without having finished.

A plugin's code runs in the command's process, and `os._exit(0)` there would look like success. Nothing inside the
process can be sure to see its end, so the command runs in a child, forked before anything heavy is imported. The two
share a page of memory: the child notes whose code it is running, and the status of a command that came to its end.
See docs/design/0030.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import mmap
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import NoReturn

from collage.command_start import note_start
from collage_core.errors import ProcessDamagedError
from collage_core.plugin_guards import LEFT_OUT, guarded_by

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_PAGE_BYTES = 4096
_RUNNING, _FINISHED = b"R", b"F"
_DAMAGED = 70
"""Status of a child that ended itself because of a `ProcessDamagedError`."""
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS)
_UNFLUSHED = 120  # of Python itself, see `sys.exit`
LINGER_S = 5.0
"""Seconds that a process has to end after its command finished; a thread or process of a plugin's may keep it."""


class Page:
    """The memory that a command and its watcher share."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _PAGE_BYTES)

    def note(self, kind: bytes, *words: str) -> None:
        """Replace what is noted: the kind is written last, so that what it stands for is whole."""
        data = json.dumps(words).encode()[: _PAGE_BYTES - 2]
        self._memory[0:1] = b"\0"
        self._memory[1:] = data.ljust(_PAGE_BYTES - 1, b"\0")
        self._memory[0:1] = kind

    def clear(self) -> None:
        """Record that no plugin's code runs."""
        self._memory[0:1] = b"\0"

    def words(self, kind: bytes) -> list[str] | None:
        """Return what was noted; None if the last note is of another kind."""
        if self._memory[0:1] != kind:
            return None
        return [str(word) for word in json.loads(self._memory[1:].rstrip(b"\0"))]

    @contextlib.contextmanager
    def noting(self, toolchain: str, hook: str) -> Iterator[None]:
        """Record whose code runs; a guard of plugins' calls.

        A process that was damaged ends here, before anything is written to files that are not what they were.
        """
        around = self.words(_RUNNING)
        self.note(_RUNNING, toolchain, hook)
        try:
            yield
        except ProcessDamagedError as error:
            self.note(_RUNNING, toolchain, hook, error.damage)
            os._exit(_DAMAGED)
        finally:
            if around is None:
                self.clear()
            else:
                self.note(_RUNNING, *around)


def watched(run: Callable[[], object]) -> NoReturn:
    """Run a command in a child, and end as it ends.

    A plugin whose code ends the child is left out, and the command starts again without it: what was measured is in
    the tuning database. It has what is left of its time. Signals that ask this process to end are passed on.

    Args:
        run: The command; ends with `SystemExit`.
    """
    left_out: dict[str, str] = {}
    began = time.monotonic()
    while True:
        page = Page()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, (*_FORWARDED, signal.SIGCHLD))
        parent = os.getpid()
        child = os.fork()
        if child == 0:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            note_start(began, parent)
            _run_in_child(run, page, parent, left_out)
        status = _end_of(child, page)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if (finished := page.words(_FINISHED)) is not None:
            sys.exit(int(finished[0]))
        culprit = page.words(_RUNNING)
        if culprit is None or (status < 0 and -status not in _CRASHES):
            _end_like(status)
        toolchain, hook, *damage = culprit
        how = f"{damage[0]} in {hook}" if damage else f"ended the process of the command in {hook} ({_told(status)})"
        if toolchain in left_out:
            _say(f"Error: toolchain {toolchain!r} {how}. Uninstall its plugin.")
            sys.exit(1)
        left_out[toolchain] = f"it {how}, so the command leaves it out"
        _say(f"Warning: toolchain {toolchain!r} {how}; the command starts again without it.")


def _run_in_child(run: Callable[[], object], page: Page, parent: int, left_out: dict[str, str]) -> NoReturn:
    """Run the command, and note its status when it is finished."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
    if left_out:
        os.environ[LEFT_OUT] = json.dumps(left_out)
    status = 0
    try:
        with guarded_by(page.noting):
            run()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:  # as Python finds when it ends: it is said there
        status = status or _UNFLUSHED
    page.note(_FINISHED, str(status))
    gc.freeze()  # to look for cycles in a large model takes seconds, and all of its memory goes anyway
    sys.exit(status)


def _end_of(child: int, page: Page) -> int:
    """Wait for a child and return its status, negative for a signal; pass signals on meanwhile.

    One that finished its command and does not end is killed: all that is left are threads and processes of plugins.
    """
    deadline: float | None = None
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if deadline is None and page.words(_FINISHED) is not None:
            deadline = time.monotonic() + LINGER_S
        if deadline is not None and time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
        told = signal.sigtimedwait((*_FORWARDED, signal.SIGCHLD), 1.0)
        # a terminal tells all its processes (SI_KERNEL); who sends to one process (SI_USER) knows this one only
        if told is not None and told.si_signo in _FORWARDED and told.si_code <= 0:
            os.kill(child, told.si_signo)


def _end_like(status: int) -> NoReturn:
    """End as a child did that no plugin ended."""
    if status < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        with contextlib.suppress(OSError):  # of SIGKILL and SIGSTOP
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
        sys.exit(128 - status)
    if status == 0:
        _say("Error: the process of the command ended before the command was finished.")
    sys.exit(status or 1)


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # the terminal may be gone
        print(text, file=sys.stderr, flush=True)


def _told(status: int) -> str:
    return f"status {status}" if status >= 0 else signal.Signals(-status).name


def can_watch() -> bool:
    """Return whether this process can be watched: it can fork, and has no thread that would be missing in a copy."""
    return sys.platform == "linux" and threading.active_count() == 1
