"""Wait until other load is gone, for what is to be timed."""

from __future__ import annotations

import enum
import math
import time
from collections.abc import Callable
from typing import Final

from collage.measure.clocks.processor_time import OTHERS_MAY, others_ran_ns, processors

LASTING: Final = 2
"""Loads in a row that stay which make the next a lasting one."""
FORGOTTEN_S: Final = 60.0
"""Seconds after which a load that stayed says nothing of the next."""
LOOK_S: Final = 0.1
"""Seconds of a look at the machine, which knows its own time to 10 ms of each processor; as many before the first,
for the threads of what was timed: ONNX Runtime's spin for some 60 ms (`EigenNonBlockingThreadPool.h`)."""
RARELY: Final = 10
"""After a look that found nothing there is none for as many times what a look takes."""


class Load(enum.Enum):
    """What became of other load."""

    ABSENT = enum.auto()
    """None is seen: it just went, or threads of what was timed waited for each other."""
    GONE = enum.auto()
    """It went."""
    STAYING = enum.auto()
    """It stayed until time was up, or is a lasting one."""


class LoadWait:
    """Waits while nothing is timed.

    Args:
        threads: Processors that are wanted. Others may have the further ones that this process may run on.
        most_s: Seconds that a load is waited for at most.
        total_s: Seconds of waiting after which no load is waited for.
        count: Processors that this process may run on.
        others_ran_ns: How long others ran there so far, in nanoseconds; None if the machine does not say.
        clock: Monotonic clock, in seconds.
        sleep: Waits for some seconds.

    Attributes:
        most_s: Seconds that a load is waited for at most.
        spent_s: Seconds of waiting so far, looks that found nothing included.
    """

    def __init__(
        self,
        threads: int,
        most_s: float,
        total_s: float = math.inf,
        *,
        count: int | None = None,
        others_ran_ns: Callable[[], int | None] = others_ran_ns,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        spare = (processors() if count is None else count) - threads
        self._others_may = max(0, spare) + OTHERS_MAY
        self.most_s = most_s
        self._total_s = total_s
        self._others_ran_ns = others_ran_ns
        self._clock = clock
        self._sleep = sleep
        self._stayed = 0
        self._stayed_s = self._absent_s = -math.inf
        self.spent_s = 0.0

    @property
    def is_lasting(self) -> bool:
        """Whether a load stayed so often, and lately, that it is not waited for."""
        return self._stayed >= LASTING and self._clock() < self._stayed_s + FORGOTTEN_S

    def __call__(self, left_s: float = math.inf) -> Load:
        """Wait until the load is gone or time is up; beside a lasting load look once.

        Args:
            left_s: Seconds that are left; the first look takes some tenths all the same.
        """
        began_s = self._clock()
        if began_s < self._absent_s + RARELY * LOOK_S:
            return Load.ABSENT
        if self.spent_s >= self._total_s:
            return Load.STAYING
        load = self._waited(began_s + min(left_s, self.most_s))
        ended_s = self._clock()
        self.spent_s += ended_s - began_s
        if load is not Load.STAYING:
            self._stayed = 0
        elif left_s >= self.most_s / 2:  # otherwise it had little time to go
            self._stayed, self._stayed_s = self._stayed + 1, ended_s
        if load is Load.ABSENT:
            self._absent_s = ended_s
        return load

    def _waited(self, ends_s: float) -> Load:
        self._sleep(LOOK_S)
        if self._is_calm():
            return Load.ABSENT
        while not self.is_lasting and self._clock() + LOOK_S <= ends_s:
            if self._is_calm():
                return Load.GONE
        return Load.STAYING

    def _is_calm(self) -> bool:
        began_s, before_ns = self._clock(), self._others_ran_ns()
        self._sleep(LOOK_S)
        after_ns, passed_s = self._others_ran_ns(), self._clock() - began_s
        return before_ns is None or after_ns is None or after_ns - before_ns < self._others_may * passed_s * 1e9
