"""How fast values go from one device to another."""

from __future__ import annotations

import dataclasses
import math


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CopyFigures:
    """Time of copies from one device to another, in one direction, as a plan makes them.

    Attributes:
        latency_us: Of a copy of hardly any bytes, in microseconds; with what waiting for it costs, where a plan waits.
        bytes_per_us: What it moves per microsecond beyond that: its megabytes per second.

    Examples:
        >>> CopyFigures(latency_us=10.0, bytes_per_us=12_000.0).copy_us(602_112)
        60.176
    """

    latency_us: float
    bytes_per_us: float

    def __post_init__(self) -> None:
        if not (0 <= self.latency_us < math.inf and 0 < self.bytes_per_us < math.inf):
            raise ValueError(f"copies take finite time, not {self}")

    def copy_us(self, size_bytes: int) -> float:
        """Time of one copy, in microseconds."""
        return self.latency_us + size_bytes / self.bytes_per_us
