"""The clocks of a fake device, its own and as much of the host's as launching takes, and a cache before its memory."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable
from typing import TypeAlias

Range: TypeAlias = tuple[int, int]
"""Address and bytes."""

COPY_US = 10.0
BYTES_PER_US = 10_000.0
MISS_BYTES_PER_US = 1_000.0
"""How fast kernels read what is not in the cache, beyond what they say they take."""


def copy_us(nbytes: int) -> float:
    """Time of a copy between the host and the device; one within the device takes a tenth."""
    return COPY_US + nbytes / BYTES_PER_US


@dataclasses.dataclass(slots=True)
class FakeTime:
    """What passes while a device works through what is enqueued.

    Attributes:
        launch_us: What launching a kernel or a graph takes the host. The device starts nothing before it is launched.
        cache_bytes: Size of a cache of least recent use; 0 for none, and then all memory is as fast.
        clock_us: The device's time.
        host_us: The host's, counting only launches and waits.
    """

    launch_us: float = 0.0
    cache_bytes: int = 0
    clock_us: float = 0.0
    host_us: float = 0.0
    _cached: collections.OrderedDict[int, int] = dataclasses.field(default_factory=collections.OrderedDict)

    def launch(self) -> None:
        """The host launches something."""
        self.host_us += self.launch_us

    def wait(self) -> None:
        """The host waits until the device is done."""
        self.host_us = max(self.host_us, self.clock_us)

    def spend(self, us: float, asked_us: float, reads: Iterable[Range] = (), writes: Iterable[Range] = ()) -> None:
        """The device does something.

        Args:
            us: How long it takes with all it reads in the cache.
            asked_us: The host's time when it was launched.
            reads: What it reads.
            writes: What it writes, which is in the cache afterwards.
        """
        missed = sum(nbytes for pointer, nbytes in reads if not self._touch(pointer, nbytes))
        for pointer, nbytes in writes:
            self._touch(pointer, nbytes)
        if self.cache_bytes:
            us += missed / MISS_BYTES_PER_US
        self.clock_us = max(self.clock_us, asked_us) + us

    def _touch(self, pointer: int, nbytes: int) -> bool:
        """Whether memory is in the cache; it is afterwards, unless it is larger."""
        there = self._cached.pop(pointer, 0) >= nbytes
        if nbytes <= self.cache_bytes:
            self._cached[pointer] = nbytes
            while sum(self._cached.values()) > self.cache_bytes:
                self._cached.popitem(last=False)
        return there
