"""Measurements: raw samples and how they were taken. Statistics are derived, never stored."""

from __future__ import annotations

import dataclasses
import math
import statistics


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """How long and how often to time a call.

    Attributes:
        warmup_runs: Untimed runs before the first sample, at least.
        warmup_s: Seconds of untimed runs, at least.
        min_samples: Fewest samples.
        max_samples: Most samples.
        duration_s: Stop after this many seconds of samples, once there are `min_samples`.
        min_sample_us: A sample times as many calls in a row as take at least this long, so that the clock's own
            cost vanishes; the sample is their mean.
    """

    warmup_runs: int = 3
    warmup_s: float = 0.02
    min_samples: int = 5
    max_samples: int = 200
    duration_s: float = 0.15
    min_sample_us: float = 200.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Run time of one bound call on one target.

    Attributes:
        samples_us: Time of one call in each timed sample, in microseconds, in the order taken.
        warmup_runs: Untimed runs before the first sample.
        calls_per_sample: Calls in a row that each sample is the mean of.
        launch: How they were launched on a device: `"graph"`, captured, or `"eager"`; empty for the CPU, or if unknown.
        launch_reason: Why not as a graph where the target asks for one; empty otherwise.
        weight_copies: Copies of its weights that were read in turn, so that none was found in the device's cache.

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

    def __post_init__(self) -> None:
        if not self.samples_us:
            raise ValueError("a measurement has at least one sample")
        if not all(math.isfinite(s) and s >= 0 for s in self.samples_us):
            raise ValueError("samples are finite microseconds >= 0")

    @property
    def median_us(self) -> float:
        """Median of the samples."""
        return statistics.median(self.samples_us)
