"""What the options of a run mean for measuring, and for how many candidates are made."""

from __future__ import annotations

from typing import Literal, cast

from collage.measure.driver.source import MeasureSettings
from collage.measure.wire.outcomes import BuildSettings, Tolerance
from collage.options import OptimizeOptions
from collage_core.fusion import CandidateBounds


def candidate_bounds(options: OptimizeOptions) -> CandidateBounds:
    """The bounds of the options' preset."""
    return CandidateBounds.preset(cast(Literal["quick", "default", "extensive"], options.preset))


def measure_settings(options: OptimizeOptions, threads: int) -> MeasureSettings:
    """How candidates are built, checked and timed.

    Args:
        options: What the user said.
        threads: CPU threads of each kernel.
    """
    preset, exact = options.effective, options.tolerance
    inexact = exact if options.max_error is None else max(exact, options.max_error)
    return MeasureSettings(
        build=BuildSettings(
            threads=threads,
            effort=preset.effort,
            seed=options.seed,
            max_variants=preset.max_variants,
            deterministic=options.deterministic,
        ),
        device_variants=preset.device_variants,
        protocol=preset.protocol,
        tolerance=Tolerance(relative=exact, mismatched=exact),
        inexact_tolerance=Tolerance(relative=inexact, mismatched=inexact),
        deadline_s=preset.deadline_s,
    )
