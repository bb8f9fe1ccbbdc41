"""Take turns again in which others had the processors.

A load that comes and goes doubles what some turns take. Ratios of rounds then vary so much that nothing is decided when
a race ends, or the wrong thing: toolchains suffer differently. So such a turn is taken again when the load is gone, as
blocks of samples are (`collage.measure.clocks.clock`).
"""

from __future__ import annotations

import time
from collections.abc import Callable

from collage.measure.clocks.load_wait import Load, LoadWait
from collage.measure.clocks.processor_time import OTHERS_MAY
from collage.measure.wire.messages import Burst
from collage.measure.wire.outcomes import Failed


class Repeating:
    """Takes the turns of a race.

    Args:
        wait: Waits until other load is gone.
        limit_s: Seconds after which no turn is taken again: those of such turns, and of the waiting before them.
        tell: Receives a sentence for the user, once, when a load turns out to be a lasting one.
        no_time: Whether no turn may be taken again.
        clock: Monotonic clock, in seconds.

    Attributes:
        spent_s: Seconds that turns taken again lasted so far, with the waiting before them.
    """

    def __init__(
        self,
        wait: LoadWait,
        limit_s: float,
        tell: Callable[[str], object] = lambda _: None,
        *,
        no_time: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wait = wait
        self._limit_s = limit_s
        self._tell = tell
        self._no_time = no_time
        self._clock = clock
        self._told = False
        self.spent_s = 0.0

    def __call__(self, turn: Callable[[], Burst | Failed]) -> Burst | Failed:
        """Take a turn, again while others have processors; return the last one.

        Not the least disturbed one: of several turns that would be the fastest, where others have one only.
        """
        began_s = self._clock()
        taken = turn()
        once_s = self._clock() - began_s
        load = Load.GONE
        while isinstance(taken, Burst) and taken.others_had >= OTHERS_MAY and load is Load.GONE:
            after_s = self._clock() - began_s - once_s
            left_s = min(self._wait.most_s, self._limit_s - self.spent_s) - after_s
            if left_s <= 0 or once_s > self._wait.most_s or self._no_time():  # a long one would see the next load
                break
            load = self._wait(left_s)
            if load is Load.STAYING:
                break
            taken = turn()
        self._tell_of_lasting()
        self.spent_s += max(0.0, self._clock() - began_s - once_s)
        return taken

    def _tell_of_lasting(self) -> None:
        if self._wait.is_lasting and not self._told:
            self._told = True
            self._tell("other processes keep the processors busy: plans are timed beside them")
