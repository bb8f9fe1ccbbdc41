"""Samples at the machine's usual speed: what a call took beside a calibration kernel, times what that usually takes."""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from collections.abc import Iterable, Sequence
from typing import ClassVar, Final

from collage_core.contract import Block

_USUAL: Final = 0.25
"""Quantile of the first calibrations that is taken for usual: what disturbs only ever makes them longer."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MachineSpeed:
    """What the calibration kernel usually takes on a machine, by which all its costs are normalised.

    It is found out once per database, by the first measurement, so that costs stay a function of what is recorded. It
    need not be right, only the same for all.

    Attributes:
        calibration_us: Microseconds.
    """

    KIND: ClassVar[str] = "machine speed"
    VERSION: ClassVar[int] = 1

    calibration_us: float

    def __post_init__(self) -> None:
        if not 0 < self.calibration_us < math.inf:
            raise ValueError(f"{self.calibration_us} us is no time")

    @classmethod
    def of(cls, blocks: Sequence[Block]) -> MachineSpeed:
        """Return the speed at which blocks were taken.

        Args:
            blocks: At least one.
        """
        ordered = sorted(block.calibration_us for block in blocks)
        return cls(calibration_us=ordered[int(_USUAL * (len(ordered) - 1))])

    @staticmethod
    def name(host: str, threads: int) -> str:
        """Return the name of the document.

        Args:
            host: The host's fingerprint.
            threads: Threads of the calibration kernel.
        """
        return f"{host}, {threads} threads"


def block_medians_us(samples_us: Sequence[float], blocks: Iterable[Block], usual_us: float | None) -> list[float]:
    """Return the median of each block at the machine's usual speed, in microseconds; without blocks, all samples.

    Args:
        samples_us: Of all blocks, in order.
        blocks: How the samples divide.
        usual_us: What the calibration kernel usually takes; None to leave the times as they are.

    Examples:
        >>> blocks = [Block(samples=2, calibration_us=10.0), Block(samples=1, calibration_us=20.0)]
        >>> block_medians_us([5.0, 7.0, 12.0], blocks, 10.0)  # the machine was slow for a while
        [6.0, 6.0]
    """
    remaining = iter(samples_us)
    medians = [
        statistics.median(itertools.islice(remaining, block.samples))
        * (1.0 if usual_us is None else usual_us / block.calibration_us)
        for block in blocks
    ]
    return medians or list(samples_us)
