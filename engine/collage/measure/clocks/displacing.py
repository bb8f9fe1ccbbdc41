"""Bring the processor into the state in which a plan's kernel finds it.

Before a kernel of a plan runs, others do. They displace from the caches what it left there at its last run: weights,
code, scratch memory. Meanwhile its toolchain's threads go to sleep, and waking them takes long: on two cores of a
virtual machine, a softmax of 0.4 ms took 1.0 ms behind another toolchain's kernel. A kernel that is called in a loop
finds everything in the caches and all threads awake. What it does find in a plan is its inputs, which the kernel before
has just written.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeAlias

import numpy as np

from collage_core.contract import Buffer, ValueKind

_Bytes: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.uint8]]"
_ASLEEP_NS: Final = 2_000_000
"""Time after which a toolchain's threads have gone to sleep. OpenVINO's still waited awake after 0.1 ms (two cores)."""


class Displacement:
    """What other kernels do to a processor: its threads read memory for a while, then write a kernel's inputs anew.

    Args:
        nbytes: Size of the memory, which is read at least once.
        inputs: The kernel's inputs; they are written with what they hold.
        threads: Threads of the kernel, the calling one included. Each has caches of its own.
    """

    def __init__(self, nbytes: int, inputs: Sequence[Buffer], threads: int) -> None:
        written = [_bytes_of(buffer.value) for buffer in inputs if _is_plain(buffer)]
        shares = [np.array_split(array, threads) for array in (_memory(nbytes), *written)]
        self._mine, *self._theirs = zip(*shares, strict=True)
        self._others = _other_threads(threads - 1) if threads > 1 else None

    def __call__(self) -> None:
        """Do it, on all threads at once."""
        others = [self._others.submit(_displace, share) for share in self._theirs] if self._others is not None else []
        _displace(self._mine)
        for other in others:
            other.result()


@functools.lru_cache(maxsize=1)
def _memory(nbytes: int) -> _Bytes:
    """Return what all displacements of this process read: writing it costs more than all that one candidate reads."""
    return np.full(nbytes, 1, dtype=np.uint8)  # zeros would be one page, read again and again


@functools.lru_cache(maxsize=1)
def _other_threads(count: int) -> ThreadPoolExecutor:
    """Return the threads beside the calling one, of all displacements of this process."""
    return ThreadPoolExecutor(count, "displacement")


def _is_plain(buffer: Buffer) -> bool:
    return buffer.spec.kind is not ValueKind.FOREIGN and not buffer.spec.numpy_dtype.hasobject


def _bytes_of(array: np.ndarray[Any, Any]) -> _Bytes:
    return array.reshape(-1).view(np.uint8)


def _displace(share: Sequence[_Bytes]) -> None:
    read, *written = share
    end = time.perf_counter_ns() + _ASLEEP_NS
    while True:
        read.max()
        if time.perf_counter_ns() >= end:
            break
    for part in written:
        np.bitwise_or(part, part, out=part)  # the same bytes, but in this thread's cache and to be written back
