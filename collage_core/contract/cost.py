"""Cost of a candidate, or a marker for an unmeasured one."""

from __future__ import annotations

import enum
import math
from typing import Final, Literal, TypeAlias

Cost: TypeAlias = float
"""Microseconds; finite and >= 0, or `INVALID`. Costs add."""

INVALID: Final[Cost] = math.inf
"""Cost of a candidate that its toolchain cannot build or run, or computes incorrectly."""


class Unmeasured(enum.Enum):
    """Result of a `CostSource` for an unmeasured candidate; deliberately not a number."""

    UNMEASURED = "unmeasured"


UNMEASURED: Final[Literal[Unmeasured.UNMEASURED]] = Unmeasured.UNMEASURED


def checked_cost(value: float) -> Cost:
    """Return `value` if it is a valid cost.

    Raises:
        ValueError: If it is NaN or negative.

    Examples:
        >>> checked_cost(12.5)
        12.5
    """
    if math.isnan(value) or value < 0:
        raise ValueError(f"a cost is a number of microseconds >= 0 or INVALID, not {value!r}")
    return value
