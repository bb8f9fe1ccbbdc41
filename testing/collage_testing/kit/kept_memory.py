"""Measure how much memory each call of a kernel keeps."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from typing import Final

_CALLS: Final = 24
_STRETCHES: Final = 3
SLIGHT_BYTES: Final = 256
"""Bytes a call may keep: what Python's own lists and counters take now and then."""


def kept_bytes(call: Callable[[], object]) -> int:
    """Return how many bytes each call keeps: the least over three stretches of calls.

    Only memory of Python's and NumPy's allocators is counted.
    """
    for _ in range(_CALLS):  # what is allocated once is no matter
        call()
    started = not tracemalloc.is_tracing()
    if started:
        tracemalloc.start()
    try:
        return max(0, min(_kept(call) for _ in range(_STRETCHES)))
    finally:
        if started:
            tracemalloc.stop()


def _kept(call: Callable[[], object]) -> int:
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(_CALLS):
        call()
    gc.collect()
    return (tracemalloc.get_traced_memory()[0] - before) // _CALLS
