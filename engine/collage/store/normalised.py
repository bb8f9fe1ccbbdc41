"""Samples at the machine's usual speed, as far as a calibration kernel tells it."""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from typing import ClassVar, Final

from collage_core.contract import Block

POWER: Final = 0.5
"""Power of the calibration kernel's time with which what other kernels take changes: `benchmarks.normalising` fits it.

Between two measurements of a kernel, minutes apart, the calibration kernel changes twice as much as the kernel does, be
it by 2 % or by 15 %. Between the blocks of one measurement the two hardly go together, so they share one factor.
"""

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


def block_times_us(
    samples_us: Sequence[float],
    blocks: Sequence[Block],
    usual_us: float | None,
    of_block: Callable[[Sequence[float]], float] = statistics.median,
) -> list[float]:
    """Return what a block took at the machine's usual speed, in microseconds, for each; without blocks, all samples.

    Args:
        samples_us: Of all blocks, in order.
        blocks: How the samples divide.
        usual_us: What the calibration kernel usually takes; None to leave the times as they are.
        of_block: Reduces the samples of a block to what it took.

    Examples:
        >>> blocks = [Block(samples=2, calibration_us=40.0), Block(samples=1, calibration_us=40.0)]
        >>> block_times_us([5.0, 7.0, 8.0], blocks, 10.0)  # the machine had half its speed
        [3.0, 4.0]
    """
    remaining = iter(samples_us)
    times = [of_block(list(itertools.islice(remaining, block.samples))) for block in blocks]
    if not times or usual_us is None:
        return times or list(samples_us)
    factor = usual_factor(usual_us, [block.calibration_us for block in blocks])
    return [time * factor for time in times]


def usual_factor(usual_us: float, calibrations_us: Sequence[float]) -> float:
    """Return by what times are multiplied to be those at the machine's usual speed.

    Args:
        usual_us: What the calibration kernel usually takes.
        calibrations_us: What it took beside them, at least once: of the blocks of a kernel, or the rounds of a race.

    Examples:
        >>> usual_factor(40.0, [10.0, 10.0, 90.0])
        2.0
    """
    return math.pow(usual_us / statistics.median(calibrations_us), POWER)
