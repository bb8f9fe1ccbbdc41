"""Suspend Python's cyclic garbage collection.

Collection is triggered by allocations, in any thread, and may free device memory. Freeing is forbidden to a thread
that captures, and ends its capture ("unsafe API calls" of cudaThreadExchangeStreamCaptureMode). During a timed
section, collection would also distort the measurement.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator


class _Collector:
    """The garbage collector of the process, with one count of all threads that suspend it."""

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
    """Disable the garbage collector inside the block.

    Blocks may nest or overlap across threads; the state before the first block is restored after the last.
    """
    _collector.hold()
    try:
        yield
    finally:
        _collector.release()
