"""Facts about what a machine computes and moves at best, and what that allows a kernel or a model: an estimate."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PeakFacts:
    """The fastest product of large matrices that was measured here.

    Attributes:
        arithmetic: `"float32"`, `"int8"`, ...
        gflop_per_s: Billions of operations per second, two for each multiply-add.
        by: What computed it: `"numpy"` or a target.
    """

    arithmetic: str
    gflop_per_s: float
    by: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BandwidthFacts:
    """Bandwidth of a level of memory, as measured.

    Attributes:
        level: `"L1"`, `"L2"`, ... or `"memory"`.
        holds_bytes: Bytes that it holds; 0 for memory, which holds everything.
        gb_per_s: Gigabytes (10^9 bytes) read and written per second.
    """

    level: str
    holds_bytes: int
    gb_per_s: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """What the machine does at best with the threads of the plan.

    Attributes:
        threads: Number of threads.
        peaks: One for each arithmetic of the plan that could be measured.
        bandwidths: The nearest level first.
        missing: Why some of it is missing, in words; empty if nothing is.
    """

    threads: int
    peaks: tuple[PeakFacts, ...] = ()
    bandwidths: tuple[BandwidthFacts, ...] = ()
    missing: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LimitFacts:
    """The least time that the machine's peaks allow a kernel or a whole model.

    It is an estimate and proves nothing: other algorithms need fewer operations, and a peak may have been measured on a
    disturbed machine.

    Attributes:
        gflop: Billions of operations by arithmetic.
        size_bytes: Bytes of inputs, weights and outputs.
        level: The nearest level of memory that holds them.
        least_us: The larger of the time for the operations and the time for the bytes; 0 if it is not estimated.
        bound_by: Which of them it is: `"arithmetic"` or `"memory"`; empty if it is not estimated.
        uncounted: Types of the operators whose operations do not follow from shapes; they count as none.
        not_estimated: Why there is no estimate; empty if there is one.
    """

    gflop: Mapping[str, float] = dataclasses.field(default_factory=dict)
    size_bytes: int = 0
    level: str = ""
    least_us: float = 0.0
    bound_by: str = ""
    uncounted: tuple[str, ...] = ()
    not_estimated: str = ""

    def share_of(self, time_us: float) -> float | None:
        """Return which share of the machine's peak a time amounts to, above 1 too; None if it is not known."""
        return self.least_us / time_us if self.least_us > 0 and time_us > 0 else None
