"""Clocks of a fake device and of the host's launches, and a cache in front of the device's memory."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable
from typing import TypeAlias

Range: TypeAlias = tuple[int, int]
"""Start address and size in bytes."""

COPY_US = 10.0
BYTES_PER_US = 10_000.0
MISS_BYTES_PER_US = 1_000.0
"""Rate at which kernels read data that is not in the cache; added to their stated duration."""


def copy_us(nbytes: int) -> float:
    """Return the time of a copy between host and device; a copy within the device takes a tenth."""
    return COPY_US + nbytes / BYTES_PER_US


@dataclasses.dataclass(slots=True)
class FakeTime:
    """Time and cache state while a device executes enqueued work.

    Attributes:
        launch_us: Host time of launching a kernel or a graph. The device starts nothing before its launch.
        cache_bytes: Size of a least-recently-used cache; 0 for none: all memory is then equally fast.
        clock_us: The device's time.
        host_us: The host's time, counting only launches and waits.
    """

    launch_us: float = 0.0
    cache_bytes: int = 0
    clock_us: float = 0.0
    host_us: float = 0.0
    _cached: collections.OrderedDict[int, int] = dataclasses.field(default_factory=collections.OrderedDict)

    def launch(self) -> None:
        """Advance the host's clock by one launch."""
        self.host_us += self.launch_us

    def wait(self) -> None:
        """Advance the host's clock until the device is done."""
        self.host_us = max(self.host_us, self.clock_us)

    def spend(self, us: float, asked_us: float, reads: Iterable[Range] = (), writes: Iterable[Range] = ()) -> None:
        """Advance the device's clock by one operation.

        Args:
            us: Duration with all reads in the cache, in microseconds.
            asked_us: The host's time at launch.
            reads: Memory it reads.
            writes: Memory it writes, which is in the cache afterwards.
        """
        missed = sum(nbytes for pointer, nbytes in reads if not self._touch(pointer, nbytes))
        for pointer, nbytes in writes:
            self._touch(pointer, nbytes)
        if self.cache_bytes:
            us += missed / MISS_BYTES_PER_US
        self.clock_us = max(self.clock_us, asked_us) + us

    def _touch(self, pointer: int, nbytes: int) -> bool:
        """Return whether memory is in the cache, and add it unless it is larger than the cache."""
        there = self._cached.pop(pointer, 0) >= nbytes
        if nbytes <= self.cache_bytes:
            self._cached[pointer] = nbytes
            while sum(self._cached.values()) > self.cache_bytes:
                self._cached.popitem(last=False)
        return there
