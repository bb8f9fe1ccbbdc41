"""How many processors others had while this process wanted them."""

from __future__ import annotations

import time
from collections.abc import Callable

from collage.measure.clocks.processor_time import (
    ProcessorTime,
    machine_ran_ns,
    others_had,
    processor_time,
    processors,
)


class OtherLoad:
    """Looks at a stretch of work of some tenths of a second.

    A process's threads wait for each other, too, and for processors that a container may not have. So others had no
    more than what the processors it may run on ran without it.

    Args:
        processor: What this process had of the processors.
        machine_ns: What these processors ran.
        count: How many they are.
        clock_ns: A monotonic clock, in nanoseconds.
    """

    def __init__(
        self,
        *,
        processor: Callable[[], ProcessorTime | None] = processor_time,
        machine_ns: Callable[[], int | None] = machine_ran_ns,
        count: int | None = None,
        clock_ns: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self._processor = processor
        self._machine_ns = machine_ns
        self._count = processors() if count is None else count
        self._clock_ns = clock_ns
        self.begin()

    def begin(self) -> None:
        """Begin a stretch."""
        self._began = (self._clock_ns(), self._processor(), self._machine_ns())

    def end(self) -> float:
        """Return how many processors others had since, on average; 0 where the system does not say."""
        began_ns, before, ran_before = self._began
        now_ns, after, ran_after = self._clock_ns(), self._processor(), self._machine_ns()
        passed_ns = now_ns - began_ns
        waited = others_had(before, after, passed_ns, self._count)
        if waited <= 0 or before is None or after is None or ran_before is None or ran_after is None:
            return 0.0
        others_ran = (ran_after - ran_before) - (after.running_ns - before.running_ns)
        return max(0.0, min(waited, others_ran / passed_ns))
