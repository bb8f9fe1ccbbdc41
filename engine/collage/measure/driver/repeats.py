"""By how much measurements of one kernel differ on a machine, and so how far one cost may be off.

The blocks of one measurement take half a second. What changes a virtual machine for minutes changes all of them alike,
so how far they are apart says little of how far the next measurement will be. Kernels that were measured twice say it.
"""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar, Final

from collage.store import MachineSpeed, RecordKey, TuningStore

LEAST: Final = 8
"""Repeated measurements from which on they say something."""
_KEPT: Final = 400
"""Repeated measurements that are remembered, the latest: a machine changes."""
_CONFIDENCE: Final = 0.95


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Repeats:
    """How far apart two measurements of one kernel were, for kernels of all models.

    Attributes:
        changes: Absolute natural logarithm of the ratio of both costs, at the machine's usual speed; the latest last.
    """

    KIND: ClassVar[str] = "repeats"
    VERSION: ClassVar[int] = 1

    changes: tuple[float, ...] = ()

    def adding(self, before_us: float, after_us: float) -> Repeats:
        """Return these with two measurements of one kernel.

        Args:
            before_us: The first cost, above 0.
            after_us: The second.
        """
        change = abs(math.log(after_us / before_us))
        return Repeats(changes=(*self.changes[1 - _KEPT :], change))

    def interval(self, cost_us: float) -> tuple[float, float] | None:
        """Return an interval that contains what another measurement of a kernel gives, with a confidence of 95 %.

        What it costs in the long run, the median over many measurements, is no further away than another one. Nothing
        is assumed of how costs are distributed but that kernels are alike, as in conformal prediction (V. Vovk et al.,
        "Algorithmic Learning in a Random World", 2005): a virtual machine may have two speeds.

        Args:
            cost_us: A cost of the kernel.

        Returns:
            Its lower and upper end; None if fewer than `LEAST` measurements were repeated.

        Examples:
            >>> low, high = Repeats(changes=(0.01,) * 10 + (0.2,) * 10).interval(100.0)
            >>> round(low, 1), round(high, 1)
            (81.9, 122.1)
        """
        if len(self.changes) < LEAST:
            return None
        rank = math.ceil(_CONFIDENCE * (len(self.changes) + 1))
        off = math.exp(sorted(self.changes)[min(rank, len(self.changes)) - 1])
        return cost_us / off, cost_us * off


def repeats_of(database: TuningStore, key: RecordKey) -> Repeats:
    """Return what a database knows of the machine, or the device of it, on which a kernel is measured."""
    return database.get_document(Repeats, MachineSpeed.name(key.host, key.threads)) or Repeats()


def note_repeat(database: TuningStore, key: RecordKey, before_us: float, after_us: float) -> None:
    """Add two measurements of one kernel to what a database knows.

    Args:
        database: Where it is kept.
        key: Of the kernel's records.
        before_us: The first cost.
        after_us: The second.
    """
    if min(before_us, after_us) <= 0:  # a device's own clock may be too coarse to see a kernel
        return
    known = repeats_of(database, key).adding(before_us, after_us)
    database.put_document(MachineSpeed.name(key.host, key.threads), known)
