"""How candidates are built, checked and timed."""

from __future__ import annotations

import dataclasses

from collage.measure.driver import memory
from collage.measure.driver.records import Limits
from collage.measure.wire.outcomes import BuildSettings, Tolerance
from collage_core.contract import Protocol, Target


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MeasureSettings:
    """How candidates are measured.

    Attributes:
        build: How they are built.
        device_variants: How many variants are tried of one on a device, where that is not what `build` says: libraries
            for devices offer many algorithms and guess among them, and each takes microseconds.
        protocol: How they are timed.
        tolerance: How exact they must be.
        inexact_tolerance: How exact those of targets must be that do not compute in the model's own dtypes.
        deadline_s: When the worker of one is killed.
        memory_bytes: About how much memory the worker of one may hold; what outgrew less is tried again.
    """

    build: BuildSettings
    device_variants: int | None = None
    protocol: Protocol = dataclasses.field(default_factory=Protocol)
    tolerance: Tolerance = dataclasses.field(default_factory=Tolerance)
    inexact_tolerance: Tolerance = dataclasses.field(default_factory=Tolerance)
    deadline_s: float = 120.0
    memory_bytes: int = dataclasses.field(default_factory=memory.limit_bytes)

    def build_for(self, target: Target) -> BuildSettings:
        """How candidates of a target are built."""
        if target.device == "cpu" or self.device_variants is None:
            return self.build
        return dataclasses.replace(self.build, max_variants=self.device_variants)

    def limits(self, target: Target) -> Limits:
        """What kernels of a target are held to."""
        tolerance = self.tolerance if target.exact else self.inexact_tolerance
        return Limits(tolerance, self.deadline_s, self.memory_bytes, self.build.deterministic)
