"""A calibration kernel: fixed work whose time says how fast the machine is at the moment.

A shared machine's speed changes by the minute and by half: other guests take cycles, clocks rise and fall. What a
kernel takes, divided by what fixed work takes beside it, changes far less. The work is a square root of each element of
an array that fits a core's second-level cache, on every thread that the kernel may use, because a process that takes
one core slows whatever waits for its slowest thread.
"""

from __future__ import annotations

import statistics
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

_ELEMENTS = 1 << 17
"""float32, so 512 KiB. NumPy works on them outside Python's lock, on the calling thread alone."""
_RUNS = 7


class Calibration:
    """Times the calibration kernel; its threads wait between the calls.

    Args:
        threads: Threads to run it on at once, the calling one included.
    """

    def __init__(self, threads: int) -> None:
        self._arrays = [np.full(_ELEMENTS, 2.0, dtype=np.float32) for _ in range(threads)]
        self._others = ThreadPoolExecutor(threads - 1, "calibration") if threads > 1 else None

    def __call__(self) -> float:
        """Run it; return the microseconds on the slowest thread, the median of a few runs."""
        mine, *arrays = self._arrays
        others = [self._others.submit(_timed, array) for array in arrays] if self._others is not None else []
        return max(_timed(mine), *(other.result() for other in others), 1e-3)


def _timed(array: np.ndarray[tuple[int], np.dtype[np.float32]]) -> float:
    clock, samples = time.perf_counter_ns, []
    for _ in range(_RUNS):
        began = clock()
        np.sqrt(array, out=array)  # approaches 1 and stays there
        samples.append(clock() - began)
    return statistics.median(samples) / 1e3
