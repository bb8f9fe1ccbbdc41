"""Signals that ask a command to end: it ends as it does after Ctrl-C, and takes its workers and temporary files along.

`timeout`, `docker stop` and batch systems send SIGTERM, a terminal that is closed SIGHUP. Python's own answer to them
is to stop where it is, which leaves gigabytes of tensors behind, and looks as if the candidate being measured had
killed the run.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType

_NAMES = ("SIGTERM", "SIGHUP")  # the second is unknown to Windows
_DEAF_S = 5.0
"""What follows so soon says the same (a closing terminal tells twice), and must not interrupt the clearing up."""


class Ended(KeyboardInterrupt):
    """A signal asked this process to end.

    Attributes:
        number: Which.
    """

    def __init__(self, number: int) -> None:
        self.number = signal.Signals(number)
        super().__init__(self.number.name)


@contextlib.contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Raises `Ended` when a signal asks to end.

    Only in the main thread, which Python gives signals to. What is ignored (`nohup`), or has a handler, stays as it is.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    last = -_DEAF_S

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal last
        if time.monotonic() - last > _DEAF_S:
            last = time.monotonic()
            raise Ended(number)

    numbers = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]
    taken = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)
