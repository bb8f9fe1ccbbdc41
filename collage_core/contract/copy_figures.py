"""Model the time of copies between devices, and fit the model to measurements."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

_FASTEST_BYTES_PER_US = 1e9
"""Bandwidth assumed if the samples show no cost per byte: a petabyte per second."""
_SHORTEST_US = 1e-3


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CopyFigures:
    """Time of copies from one device to another, in one direction, as a plan performs them.

    Attributes:
        latency_us: Time of a copy of almost no bytes, in microseconds.
        bytes_per_us: Bandwidth beyond the latency, in bytes per microsecond (megabytes per second).

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
        """Return the time of one copy, in microseconds."""
        return self.latency_us + size_bytes / self.bytes_per_us

    @classmethod
    def fitted(cls, points: Sequence[tuple[int, float]]) -> CopyFigures:
        """Fit a line through measured copy times by least squares of relative errors.

        Errors are relative to the measured time: otherwise the noise of a copy of a millisecond, which exceeds the
        whole latency, would determine the latency. Neither coefficient may be negative; where the best line has a
        negative one, the best line without that coefficient is used (least squares under two bounds).

        Args:
            points: Bytes and median microseconds of at least two sizes.

        Raises:
            ValueError: If all sizes are the same, or a time is not finite or negative.

        Examples:
            >>> CopyFigures.fitted([(1000, 3.0), (2000, 4.0), (8000, 10.0)])
            CopyFigures(latency_us=2.0, bytes_per_us=1000.0)
        """
        if len({size for size, _ in points}) < 2 or not all(0 <= us < math.inf for _, us in points):
            raise ValueError(f"a line goes through times of at least two sizes, not {points}")
        # the wanted a and b have a * u + b * v = 1 for each point, u and v being what one of either adds to its time
        u = [1 / max(us, _SHORTEST_US) for _, us in points]
        v = [size / max(us, _SHORTEST_US) for size, us in points]
        uu, vv, uv = _dot(u, u), _dot(v, v), _dot(u, v)
        su, sv = math.fsum(u), math.fsum(v)
        determinant = uu * vv - uv * uv
        a, b = (su * vv - sv * uv) / determinant, (sv * uu - su * uv) / determinant
        if a < 0 or b <= 0:
            # what is left of the squares without one part is n - s * s / squares: the larger of these quotients wins
            a, b = (0.0, sv / vv) if sv * sv / vv > su * su / uu else (su / uu, 0.0)
        per_us = min(_FASTEST_BYTES_PER_US, 1 / b if b else math.inf)
        return cls(latency_us=round(a, 6), bytes_per_us=float(f"{per_us:.9g}"))


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    return math.fsum(x * y for x, y in zip(one, other, strict=True))
