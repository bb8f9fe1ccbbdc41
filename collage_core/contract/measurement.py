"""Raw timing samples and how they were taken. Statistics are derived, never stored."""

from __future__ import annotations

import dataclasses
import math
import statistics


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """Number and duration of the timed runs of a call.

    Attributes:
        warmup_runs: Minimum number of untimed runs before the first sample.
        warmup_s: Minimum duration of the untimed runs, in seconds.
        min_samples: Minimum number of samples.
        max_samples: Maximum number of samples.
        duration_s: Stop after this many seconds of samples, and of what core does between them, once there are
            `min_samples`.
        blocks: Number of blocks that core's clock takes the samples in, each beside its calibration kernel.
        min_sample_us: Minimum duration of a sample: a sample is the mean of enough consecutive calls to take
            this long, so that the cost of the clock is negligible. It is one call where core does before each sample
            what other kernels of a plan would do.
    """

    warmup_runs: int = 3
    warmup_s: float = 0.02
    min_samples: int = 5
    max_samples: int = 200
    duration_s: float = 0.15
    blocks: int = 5
    min_sample_us: float = 200.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Consecutive samples that were taken beside a calibration kernel.

    Attributes:
        samples: Number of samples.
        calibration_us: Time that the calibration kernel took right before and after them, on average.
    """

    samples: int
    calibration_us: float

    def __post_init__(self) -> None:
        # Whatever kind of number they come as: equal blocks have to give equal JSON.
        object.__setattr__(self, "samples", int(self.samples))
        object.__setattr__(self, "calibration_us", float(self.calibration_us))
        if self.samples < 1 or not 0 < self.calibration_us < math.inf:
            raise ValueError("a block has at least one sample and a finite calibration > 0")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Run time of one bound call on one target.

    Attributes:
        samples_us: Time of one call in each timed sample, in microseconds, in the order taken.
        warmup_runs: Untimed runs before the first sample.
        calls_per_sample: Number of consecutive calls averaged in each sample.
        launch: Launch mode on a device: `"graph"` (captured) or `"eager"`; empty for the CPU, or if unknown.
        launch_reason: Why the call was not captured although the target requests it; empty otherwise.
        weight_copies: Number of copies of the weights that were read in turn, to keep them out of the device's
            cache.
        blocks: How the samples divide into blocks, in order; empty where no calibration kernel ran.

    Examples:
        >>> Measurement(samples_us=(12.0, 11.0, 40.0), warmup_runs=3).median_us
        12.0
    """

    samples_us: tuple[float, ...]
    warmup_runs: int
    calls_per_sample: int = 1
    launch: str = ""
    launch_reason: str = ""
    weight_copies: int = 1
    blocks: tuple[Block, ...] = ()

    def __post_init__(self) -> None:
        if not self.samples_us:
            raise ValueError("a measurement has at least one sample")
        if not all(math.isfinite(s) and s >= 0 for s in self.samples_us):
            raise ValueError("samples are finite microseconds >= 0")
        if self.blocks and sum(block.samples for block in self.blocks) != len(self.samples_us):
            raise ValueError("every sample is in one block")

    @property
    def median_us(self) -> float:
        """Median of the samples."""
        return statistics.median(self.samples_us)
