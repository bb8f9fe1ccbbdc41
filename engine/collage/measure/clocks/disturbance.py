"""Tell when the machine was not itself: its speed changed, it was slower than usual, or others had the processor.

A shared machine's speed is not one number. Where two processors are threads of one core, what keeps both of them busy
takes twice as long when the host places them so, while what waits for memory takes as long as before (seen: the
calibration kernel took 53 or 102 us, by the second, and a convolution at most a half more). So dividing by the
calibration kernel's time mends small changes only. Samples of another state have to be taken again.
"""

from __future__ import annotations

import collections
import dataclasses
import time
from collections.abc import Callable
from typing import Final

from collage.measure.clocks.processor_time import OTHERS_MAY, ProcessorTime, others_had, processor_time, processors

DISTURBED: Final = 1.1
"""Disturbance from which samples are taken again."""
_REMEMBERED: Final = 1000
"""Calibrations by which the usual one is known: about a minute of measuring. If it stays slower, that is usual then."""
_USUAL: Final = 0.25
"""Quantile of these; what disturbs only ever makes them longer."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The machine at a moment.

    Attributes:
        calibration_us: What the calibration kernel takes.
        at_ns: When that was known, by a monotonic clock.
        processor: What this process has had of the processors until then; None where the system does not say.
    """

    calibration_us: float
    at_ns: int
    processor: ProcessorTime | None


class Observer:
    """Looks at the machine between blocks of samples.

    Args:
        calibrate: Runs the calibration kernel; returns what it takes, in microseconds.
        processor: Returns what this process has had of the processors.
        count: Number of processors.
        clock_ns: A monotonic clock, in nanoseconds.
    """

    def __init__(
        self,
        calibrate: Callable[[], float],
        *,
        processor: Callable[[], ProcessorTime | None] = processor_time,
        count: int | None = None,
        clock_ns: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self._calibrate = calibrate
        self._processor = processor
        self._count = processors() if count is None else count
        self._clock_ns = clock_ns
        self._seen: collections.deque[float] = collections.deque(maxlen=_REMEMBERED)

    def __call__(self) -> Moment:
        """Look now."""
        calibration_us = self._calibrate()
        self._seen.append(calibration_us)
        return Moment(calibration_us=calibration_us, at_ns=self._clock_ns(), processor=self._processor())

    @property
    def usual_us(self) -> float:
        """What the calibration kernel usually took lately."""
        ordered = sorted(self._seen)
        return ordered[int(_USUAL * (len(ordered) - 1))]

    def disturbance(self, before: Moment, after: Moment) -> float:
        """Return how far what happened between two moments was disturbed: 1 is not at all; see `DISTURBED`.

        Args:
            before: The earlier one.
            after: The later one.
        """
        slow, fast = sorted((before.calibration_us, after.calibration_us), reverse=True)
        changed, slower = slow / fast, (slow + fast) / 2 / self.usual_us
        return max(changed, slower, 1.0) + self.others_had(before, after)

    def others_had(self, before: Moment, after: Moment) -> float:
        """Return how many processors others had between two moments; 0 if it may have been this process's own threads.

        Args:
            before: The earlier one.
            after: The later one.
        """
        taken = others_had(before.processor, after.processor, after.at_ns - before.at_ns, self._count)
        return taken if taken >= OTHERS_MAY else 0.0
