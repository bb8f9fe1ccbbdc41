"""Fixed work that tells whether two parts of a machine slow each other: through caches, memory, clocks, or a core."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from collage.fleet.jobs import AskInterference, Interference

_ELEMENTS = 8 << 20
"""float32, so 32 MiB for each thread: more than its share of most last-level caches."""


def interference(ask: AskInterference) -> Interference:
    """Run the work for some time, on all threads at once: each reads and writes memory, and computes."""
    arrays = [np.full(_ELEMENTS, 2.0, dtype=np.float32) for _ in range(ask.threads)]
    runs: list[tuple[float, float]] = []
    with ThreadPoolExecutor(ask.threads) as threads:
        end = time.monotonic() + ask.duration_s
        while (began := time.monotonic()) < end:
            list(threads.map(_work, arrays))
            runs.append((began, time.monotonic() - began))
    return Interference(runs=tuple(runs))


def _work(array: np.ndarray[tuple[int], np.dtype[np.float32]]) -> None:
    np.sqrt(array, out=array)  # approaches 1 and stays there
