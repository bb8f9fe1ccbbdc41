"""Wait until other load is gone, for what is to be timed."""

from __future__ import annotations

import enum
import math
import os
import time
from collections.abc import Callable
from typing import Final

from collage.measure.clocks.processor_time import machine_ran_ns

LASTING: Final = 2
"""Loads in a row that stay which make the next a lasting one."""
LOOK_S: Final = 0.1
"""Seconds of a look at the machine, which knows its own time to 10 ms of each processor; as many before the first,
for the threads of what was timed: ONNX Runtime's spin for some 60 ms (`EigenNonBlockingThreadPool.h`)."""
_OTHERS_MAY: Final = 0.3
"""Processors that others may have of those that are wanted. What looks after an idle machine has some hundredths."""


class Load(enum.Enum):
    """What became of other load."""

    ABSENT = enum.auto()
    """There was none at the first look: it just went, or threads of what was timed waited for each other."""
    GONE = enum.auto()
    """It went."""
    STAYING = enum.auto()
    """It stayed until time was up, or is a lasting one."""


class LoadWait:
    """Waits while nothing is timed.

    Args:
        threads: Processors that are wanted. Others may have the machine's further ones.
        most_s: Seconds after which a load is not waited for any longer.
        count: Processors of the machine.
        ran_ns: How long all of them ran anything so far, in nanoseconds; None if the machine does not say.
        clock: Monotonic clock, in seconds.
        sleep: Waits for some seconds.
    """

    def __init__(
        self,
        threads: int,
        most_s: float,
        *,
        count: int | None = None,
        ran_ns: Callable[[], int | None] = machine_ran_ns,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        spare = ((os.cpu_count() or 1) if count is None else count) - threads
        self._others_may = max(0, spare) + _OTHERS_MAY
        self.most_s = most_s
        self._ran_ns = ran_ns
        self._clock = clock
        self._sleep = sleep
        self._stayed = 0

    @property
    def is_lasting(self) -> bool:
        """Whether the load stayed so often that it is not waited for."""
        return self._stayed >= LASTING

    def __call__(self, left_s: float = math.inf) -> Load:
        """Wait until the load is gone or time is up; beside a lasting load look once.

        Args:
            left_s: Seconds that are left; the first look takes some tenths all the same.
        """
        ends_s = self._clock() + min(left_s, self.most_s)
        self._sleep(LOOK_S)
        if self._is_calm():
            self._stayed = 0
            return Load.ABSENT
        while not self.is_lasting and self._clock() + LOOK_S <= ends_s:
            if self._is_calm():
                self._stayed = 0
                return Load.GONE
        if left_s >= self.most_s / 2:  # otherwise it had little time to go
            self._stayed += 1
        return Load.STAYING

    def _is_calm(self) -> bool:
        began_s, before_ns = self._clock(), self._ran_ns()
        self._sleep(LOOK_S)
        after_ns, passed_s = self._ran_ns(), self._clock() - began_s
        return before_ns is None or after_ns is None or after_ns - before_ns < self._others_may * passed_s * 1e9
