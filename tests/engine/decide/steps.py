"""Plans whose steps were timed in their places."""

from __future__ import annotations

from collections.abc import Mapping

from collage.decide.timed import Timed
from collage_core.candidates.plan import Plan

USUAL_US = 10.0
"""What the calibration kernel usually takes."""


def raced(
    plan: Plan, time_us: float, *parts_us: Mapping[str, float], beside_us: float = USUAL_US, first_round: int = 0
) -> Timed:
    """A plan that took the same in each of two rounds, on a machine that was as fast in both."""
    return Timed(
        name=plan.name,
        single=plan.single,
        kernels=len(plan.kernels),
        toolchains=len(plan.toolchains),
        rounds_us=((time_us,), (time_us,)),
        calibrations_us=(beside_us, beside_us),
        parts_us=parts_us,
        first_round=first_round,
    )


def targets(plan: Plan) -> list[str]:
    """Return the names of the targets of a plan's kernels, in order."""
    return [each.target.name for each in plan.kernels]
