"""How candidates are built, checked and timed."""

from __future__ import annotations

import dataclasses
import math
from typing import Final

from collage.measure.driver import memory
from collage.measure.driver.records import Limits
from collage.measure.wire.outcomes import BuildSettings, Tolerance
from collage_core.contract import Protocol, Target

BRIEF_BLOCKS: Final = 2
"""Blocks of a brief measurement. What disturbs a measurement lasts longer than all of its blocks, so the first ones say
nearly as much as all; where more has to be known, a second measurement a while later says more than a longer first.
"""
KERNEL_ERROR: Final = 0.5
"""Largest error at the boundary of a kernel that does not compute in the model's own dtypes.

What it does to the outputs is what counts, and that is found out of whole plans. What is further off than half of the
scale is no approximation, but wrong.
"""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MeasureSettings:
    """How candidates are measured.

    Attributes:
        build: Build settings.
        device_variants: Number of variants tried per candidate on a device, if it differs from `build`: device
            libraries offer many algorithms and choose heuristically, and each takes only microseconds.
        protocol: Timing protocol.
        tolerance: Required accuracy.
        inexact_tolerance: Required accuracy of plans with targets that do not compute in the model's own dtypes.
        inexact_kernel_tolerance: Required accuracy of the kernels of such targets that are not chosen by region.
        by_region: Whether regions of lower precision are chosen under a bound on the outputs (`is_chosen_by_region`).
        deadline_s: Seconds after which a candidate's worker is killed.
        memory_bytes: Approximate memory a candidate's worker may hold; candidates that outgrew less are tried again.
        percentile: Which of the samples of a block is what a kernel costs, in percent.
        load_wait_s: Seconds that other load is waited for at most while a candidate is timed; 0 for not at all.
    """

    build: BuildSettings
    device_variants: int | None = None
    protocol: Protocol = dataclasses.field(default_factory=Protocol)
    tolerance: Tolerance = dataclasses.field(default_factory=Tolerance)
    inexact_tolerance: Tolerance = dataclasses.field(default_factory=Tolerance)
    inexact_kernel_tolerance: Tolerance = dataclasses.field(default_factory=Tolerance)
    by_region: bool = False
    deadline_s: float = 120.0
    memory_bytes: int = dataclasses.field(default_factory=memory.limit_bytes)
    percentile: float = 50.0
    load_wait_s: float = 0.0

    @property
    def brief(self) -> Protocol:
        """The protocol's first blocks only, for what has to be known roughly."""
        protocol = self.protocol
        blocks = min(BRIEF_BLOCKS, protocol.blocks)
        share = blocks / protocol.blocks
        return dataclasses.replace(
            protocol,
            blocks=blocks,
            min_samples=max(1, math.ceil(share * protocol.min_samples)),
            max_samples=max(1, math.ceil(share * protocol.max_samples)),
            duration_s=share * protocol.duration_s,
        )

    def build_for(self, target: Target) -> BuildSettings:
        """Return the build settings of a target's candidates."""
        if target.device == "cpu" or self.device_variants is None:
            return self.build
        return dataclasses.replace(self.build, max_variants=self.device_variants)

    def limits(self, target: Target) -> Limits:
        """Return the limits that apply to a target's kernels."""
        tolerance = self.tolerance if target.exact else self.inexact_kernel_tolerance
        if self.by_region and target.is_chosen_by_region:
            allowed = max(KERNEL_ERROR, self.inexact_tolerance.relative)
            tolerance = Tolerance(relative=allowed, mismatched=allowed)
        build = self.build_for(target)
        return Limits(
            tolerance, self.deadline_s, self.memory_bytes, build.deterministic, build.effort, build.max_variants
        )
