"""Python's search for unreachable cycles, held off.

It runs whenever enough objects were made, in whichever thread that is, and what it finds may own memory of a device.
Giving that back is forbidden to a thread that captures, and ends its capture ("unsafe API calls" of
cudaThreadExchangeStreamCaptureMode). Beside something that is timed it would be timed, too.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator


class _Collector:
    """The process's collector, of which there is one; so there is one count of those who hold it off."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders = 0
        self._was_on = False

    def hold(self) -> None:
        with self._lock:
            if not self._holders:
                self._was_on = gc.isenabled()
                gc.disable()
            self._holders += 1

    def release(self) -> None:
        with self._lock:
            self._holders -= 1
            if not self._holders and self._was_on:
                gc.enable()


_collector = _Collector()


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """No cycles are collected in its block, whichever threads are in such blocks; afterwards as before the first."""
    _collector.hold()
    try:
        yield
    finally:
        _collector.release()
