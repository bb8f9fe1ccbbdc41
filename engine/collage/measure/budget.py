"""The time that a whole run may take."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Iterator
from typing import Self

from collage.errors import BudgetError
from collage_core.errors import DeadlineExceededError
from collage_core.plugin_calls import time_limit

_EXPLORING, _RACING = 0.6, 0.85
"""Shares of the budget after which no further candidate is measured, and by which the heats of races end."""

_GRACE = 0.05
_GRACE_S = 3.0
"""Share and seconds by which a run may exceed its budget, for what no plan can do without."""
_LEAST_S = 20.0
"""Seconds from its beginning that a run gets in any case: toolchains have to start, and a plan has to be built and
verified.
"""

_FINISHING_S = 20.0
"""Seconds in which a run may build and verify a plan that has been timed, though its budget is spent."""

_AGAIN_S = 30.0
"""Seconds in which an interrupted run ends its processes and removes its files before it is interrupted again."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The time that is left of a run.

    Attributes:
        seconds: All of it; infinite if there is no limit.
        ends: When it ends, by the clock.
        clock: Monotonic clock, in seconds.

    Examples:
        >>> budget = Budget.begin(20.0, clock=lambda: 100.0)
        >>> budget.left_s, budget.within(600.0, least_s=5.0), budget.part(0.5).left_s
        (20.0, 20.0, 10.0)
        >>> Budget.begin(None).within(600.0, least_s=5.0)
        600.0
    """

    seconds: float
    ends: float
    clock: Callable[[], float] = time.monotonic

    @classmethod
    def begin(
        cls, seconds: float | None, *, began: float | None = None, clock: Callable[[], float] = time.monotonic
    ) -> Self:
        """Return the budget of a run.

        Args:
            seconds: All of it; None for no limit.
            began: When the run began, by the clock; now if None.
            clock: Monotonic clock, in seconds.
        """
        limit = math.inf if seconds is None else seconds
        return cls(seconds=limit, ends=(clock() if began is None else began) + limit, clock=clock)

    @property
    def left_s(self) -> float:
        """Seconds that are left, at least 0."""
        return max(0.0, self.ends - self.clock())

    @property
    def is_spent(self) -> bool:
        """Whether it has ended."""
        return self.clock() > self.ends

    def part(self, share: float) -> Budget:
        """Return the budget of the steps that end when a share of this one is spent."""
        if math.isinf(self.seconds):
            return self
        return dataclasses.replace(self, seconds=share * self.seconds, ends=self.ends - (1 - share) * self.seconds)

    def but(self, seconds: float) -> Budget:
        """Return the budget of steps that leave some seconds of this one."""
        return dataclasses.replace(self, ends=self.ends - seconds)

    @property
    def exploring(self) -> Budget:
        """The part for evaluating the model and measuring candidates."""
        return self.part(_EXPLORING)

    @property
    def racing(self) -> Budget:
        """The part until the last heat of a race ends; the rest is for the verification."""
        return self.part(_RACING)

    def allows_again(self, began: float) -> bool:
        """Return whether there is time to repeat what began at a moment, by the clock, and ends now."""
        return self.left_s >= self.clock() - began

    def within(self, seconds: float, *, least_s: float) -> float:
        """Return the deadline of a step: what it may take without a budget, or what is left.

        Args:
            seconds: What it may take without a budget.
            least_s: What it gets in any case.
        """
        return min(seconds, max(least_s, self.left_s))

    @contextlib.contextmanager
    def enforced(self, what: str, advice: str = "Give it more time with --budget.") -> Iterator[Callable[[], None]]:
        """Interrupt what goes on for long after the end of the budget.

        The block gets a function to call when nothing but the last steps are to be done: it leaves some seconds for
        these, so that what was found is not lost with them.

        Args:
            what: Name of the work, for the error.
            advice: What to do then.

        Raises:
            BudgetError: If that happens.
        """
        if math.isinf(self.seconds):
            yield lambda: None
            return
        until = max(self.ends + _GRACE * self.seconds + _GRACE_S, self.ends - self.seconds + _LEAST_S)
        try:
            with time_limit(max(_GRACE_S, until - self.clock()), what, again_s=_AGAIN_S) as leave:
                yield lambda: leave(_FINISHING_S)
        except DeadlineExceededError as error:
            if error.what != what:
                raise
            raise BudgetError(what, self.seconds, advice) from error


UNLIMITED = Budget.begin(None)
